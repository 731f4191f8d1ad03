"""Instants as receipts write them: RFC 3339 in UTC."""

from __future__ import annotations

from datetime import datetime


def instant(text: str) -> datetime:
    """The instant of e.g. ``2026-01-31T12:00:00.5Z``. Raises ``ValueError`` for no date."""
    return datetime.fromisoformat(text)
