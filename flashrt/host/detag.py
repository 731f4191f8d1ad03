"""Tagged corpus lines (``word/tag word/tag``) to the plain text they were tagged from."""

from __future__ import annotations

import re

_TERMINATORS = frozenset(";?!")
_CLOSING = re.compile(r" +([,.;:?!)\]}]+)(?=\s|$|'')")
_OPENING = re.compile(r"(?<=[(\[{]) +")
_OPEN_QUOTE = re.compile(r"`` *")
_CLOSE_QUOTE = re.compile(r" *''")
_SINGLE = re.compile(r"(^|\s)` +")


def _words(line: str) -> list[str]:
    words: list[str] = []
    for token in line.split():
        word = token.rpartition("/")[0] or token
        if word.startswith("**"):  # a typesetting mark such as **zg, not text
            continue
        # The corpus writes a sentence-ending ; ? or ! twice.
        if word in _TERMINATORS and words and words[-1] == word:
            continue
        # A full stop that ends a sentence after an abbreviation is the abbreviation's own.
        if word == "." and words and words[-1].endswith("."):
            continue
        words.append(word)
    return words


def plain_line(line: str) -> str:
    """One line without tags, with the spacing of running text and straight double quotes."""
    text = " ".join(_words(line))
    text = _OPEN_QUOTE.sub("``", text)
    text = _CLOSE_QUOTE.sub("''", text)
    text = _OPENING.sub("", text)
    text = _CLOSING.sub(r"\1", text)
    text = _SINGLE.sub(r"\1`", text)
    return text.replace("``", '"').replace("''", '"')


def plain_text(tagged: str) -> str:
    """A document without tags: sentences of a paragraph joined, paragraphs one line apart."""
    paragraphs: list[list[str]] = [[]]
    for line in tagged.splitlines():
        if line.strip():
            paragraphs[-1].append(line)
        elif paragraphs[-1]:
            paragraphs.append([])
    texts = (plain_line(" ".join(lines)) for lines in paragraphs)
    return "\n".join(text for text in texts if text)
