"""Maps the top-level folders into the packages they are installed as (pyproject has the rest)."""

from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
MAPPED = {
    "flashrt": "flashrt",
    "flashrt_cli": "flashrt_cli",
    "flashrt_runtime": "flashrt_runtime",
    "flashrt.catalog": "catalog",
    "flashrt.bindings": "bindings",
    "flashrt.schemas": "schemas",
    "flashrt_runtime.impls": "impls",
}


def packages() -> dict[str, str]:
    """Package name to folder, for every folder that holds a file of ours."""
    found = {}
    for package, folder in MAPPED.items():
        for path in sorted([ROOT / folder, *(ROOT / folder).rglob("*")]):
            if path.is_dir() and "__pycache__" not in path.parts and any(path.glob("*.*")):
                relative = path.relative_to(ROOT / folder)
                found[".".join([package, *relative.parts])] = str(path.relative_to(ROOT))
    return found


setup(
    packages=sorted(packages()),
    package_dir=packages(),
    package_data={"": ["*.yaml", "*.json", "*.lock", "*.safetensors", "py.typed"]},
)
