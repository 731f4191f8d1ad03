"""Text from files made harmless before it reaches a terminal, a CI log, Markdown, HTML or XML.

Names and paths come from files that strangers wrote. What cannot be shown as itself is shown as a
visible escape (``\\n``, ``\\x1b``, ``\\u202e``), so that nothing is hidden and nothing is obeyed.
"""

from __future__ import annotations

import html as _html
import re
import unicodedata

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
# Control, format (bidi overrides, zero width), surrogate, line and paragraph separator.
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_LEADING_COMMAND = re.compile(r"^(\s*):(?=:)")
_INLINE_COMMAND = re.compile(r"#(?=#(?:\[|vso\[))", re.IGNORECASE)


def _escape(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    point = ord(character)
    if point < 0x100:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def visible(text: str) -> str:
    """One line without control, format or separator characters; each is shown as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(c) if unicodedata.category(c) in _HIDDEN else c for c in text)


def log_line(text: str) -> str:
    """A line that no CI runner takes for a command (``::error``, ``##[error]``, ``##vso[``)."""
    line = _LEADING_COMMAND.sub(r"\1\\x3a", visible(text))
    return _INLINE_COMMAND.sub(r"\\x23", line)


def annotation_data(text: str) -> str:
    """The message part of a GitHub workflow command."""
    return log_line(text).replace("%", "%25")


def annotation_property(text: str) -> str:
    """A property value (``file=``, ``title=``) of a GitHub workflow command."""
    return visible(text).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")


def markdown(text: str) -> str:
    """Text for a Markdown cell: no markup, no link, no table break."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&@-])", r"\\\1", visible(text))


def html(text: str) -> str:
    """Text for an HTML element or a quoted attribute."""
    return _html.escape(visible(text), quote=True)


def xml(text: str) -> str:
    """Text for an XML 1.0 element or a quoted attribute, with no runner command in it."""
    # U+FFFE and U+FFFF are no XML characters and have no category of their own (Cn).
    shown = visible(text).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
    return _html.escape(_INLINE_COMMAND.sub(r"\\x23", shown), quote=True)


def width(text: str) -> int:
    """Columns that the text takes in a terminal (wide characters take two, combining none)."""
    if text.isascii():
        return len(text)
    total = 0
    for character in text:
        if not unicodedata.combining(character):
            total += 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return total
