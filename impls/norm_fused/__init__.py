"""Implementations of norm_fused."""
