"""A real host: its weights, its tokenizer, its text, and the seams found in its module tree."""

from flashrt.host.load import Host, load
from flashrt.host.load import load as load_host

__all__ = ["Host", "load", "load_host"]
