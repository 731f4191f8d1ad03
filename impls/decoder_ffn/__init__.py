"""Implementations of decoder_ffn."""
