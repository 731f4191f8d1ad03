"""Whole-loop decoding: a static cache, one captured step, a greedy loop."""
