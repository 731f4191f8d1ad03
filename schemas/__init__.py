"""Installed data: schemas."""
