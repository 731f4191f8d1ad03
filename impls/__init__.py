"""Installed data: impls."""
