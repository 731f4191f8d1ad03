"""Installed data: catalog."""
