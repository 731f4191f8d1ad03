"""An environment of its own that borrows the packages of the one that runs this file.

Torch is a gigabyte and takes a minute to install; a second environment that only needs one package
more, or one package less, need not have its own copy.
"""

from __future__ import annotations

import argparse
import sysconfig
import venv
from enum import Enum
from pathlib import Path


class Share(Enum):
    """What is borrowed: a line of a ``.pth`` file, with ``{}`` for the lending site-packages."""

    # A plain path adds the folder and none of the .pth files in it, so that an editable install
    # stays out.
    PACKAGES = "{}"
    # addsitedir runs them too, so that an editable install comes along.
    PACKAGES_AND_EDITABLE = "import site; site.addsitedir({!r})"


def make_environment(folder: Path, share: Share) -> Path:
    """Create (or empty and create again) an environment without pip. Its interpreter's path."""
    venv.EnvBuilder(with_pip=False, clear=True, symlinks=True).create(folder)
    base = {"base": str(folder), "platbase": str(folder)}
    site = Path(sysconfig.get_path("purelib", "venv", base))
    line = share.value.format(sysconfig.get_path("purelib"))
    (site / "borrowed.pth").write_text(line + "\n")
    return folder / "bin" / "python"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    print(make_environment(arguments.folder.resolve(), Share.PACKAGES_AND_EDITABLE))
