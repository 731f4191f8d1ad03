"""Commands: parse, call the library, render."""
