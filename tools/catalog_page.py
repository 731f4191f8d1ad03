"""Write docs/catalog.md from the catalog, the impls and the bindings; --check only compares."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from flashrt.document.problem import InputError
from flashrt.report.catalog_page import page

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "catalog.md"


def main() -> int:
    """0 when the page is written or is as it should be, 1 when it is not, 2 for a bad file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when it differs")
    arguments = parser.parse_args()
    try:
        text = page(ROOT / "catalog", ROOT / "bindings", ROOT / "impls")
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.check:
        if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{PAGE.relative_to(ROOT)} is not what the files say; run it", file=sys.stderr)
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
