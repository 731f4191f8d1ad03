"""Installed data: bindings."""
