"""The picture of a calibration, in the format that the file's name asks for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from flashrt.report.calibration_view import CalibrationView, view
from flashrt_runtime.reason import Reason, Refusal

FORMATS = (".html", ".png")


def require_plottable(file: Path) -> None:
    """Refuse before any work is done what :func:`plot` could not write at the end.

    Raises :class:`Refusal`: CONFLICT for a name that is neither .html nor .png, SOFTWARE for a .png
    where matplotlib is not installed.
    """
    if file.suffix.lower() not in FORMATS:
        raise Refusal(
            Reason.CONFLICT,
            "a picture of a calibration is .html or .png",
            subject=str(file),
            do="name the file so",
        )
    if file.suffix.lower() == ".png" and not _installed("matplotlib"):
        raise Refusal(
            Reason.SOFTWARE,
            "a .png is drawn by matplotlib, which is not installed",
            subject=str(file),
            do="pip install 'flashrt[plot]', or ask for .html, which needs nothing",
        )


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # it stands in sys.modules without a spec, or as None
        return False


def plot(body: Mapping[str, Any], table: bytes, file: Path) -> None:
    """Draw a calibration receipt and its table into a file.

    Raises :class:`Refusal`: as :func:`draw`, and as :func:`view` when they do not belong together.
    """
    require_plottable(file)
    draw(view(body, table), file)


def draw(seen: CalibrationView, file: Path) -> None:
    """Write the picture. Raises as :func:`require_plottable`, and STORAGE when it cannot."""
    from flashrt.document.atomic import write_atomic

    require_plottable(file)
    if file.suffix.lower() == ".png":
        from flashrt.report.calibration_png import calibration_png

        write_atomic(file, calibration_png(seen))
    else:
        from flashrt.report.calibration_page import calibration_html

        write_atomic(file, calibration_html(seen).encode())
