"""Implementations of qkv_pack."""
