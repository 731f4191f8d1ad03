"""Implementations of linear_proj."""
