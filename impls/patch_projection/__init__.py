"""Implementations of patch_projection."""
