"""``meta/info.json``: the layout, the rate, what is in a row, and where the files lie."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flashrt.calibration.lerobot.folder import Folder, Place
from flashrt.document.canonical import read_json
from flashrt_runtime.reason import Reason

FILE = "meta/info.json"
STATE = "observation.state"
ACTION = "action"
_PICTURES = ("image", "video")
_WIDTH = re.compile(r"(0?[1-9]?d)?")
_FIELDS = {
    2: frozenset({"episode_chunk", "episode_index", "video_key"}),
    3: frozenset({"chunk_index", "file_index", "video_key"}),
}
_LEAST_FPS = 0.001  # below it, half a frame is so long that any frame is near enough
_MOST_FPS = 1_000_000  # far above any camera, and a float
_MADE_BY = "see what wrote it, or write it again with lerobot"


@dataclass(frozen=True)
class Feature:
    """One entry of a row: its dtype as the layout says it (``image``, ``video``, ``float32``)."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Info:
    """``version`` is ``v2.1`` or ``v3.0``; ``fps`` frames a second; ``chunk`` files in a folder."""

    place: Place
    version: str
    fps: float
    features: Mapping[str, Feature]
    data_path: str
    video_path: str | None
    chunk: int
    episodes: int
    frames: int

    @property
    def major(self) -> int:
        """2 or 3."""
        return int(self.version[1])

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the features that are images or video, sorted."""
        return tuple(n for n, f in sorted(self.features.items()) if f.dtype in _PICTURES)


def read_info(folder: Folder) -> Info:
    """Read and check ``meta/info.json``. Raises :class:`InputError` naming the field."""
    place = folder.place(FILE)
    body = read_json(folder.file(FILE, place))
    version = body.get("codebase_version")
    if version not in ("v2.0", "v2.1", "v3.0"):
        raise place.at("$.codebase_version").refuse(
            f"{version!r} is not a layout that is read here",
            "v2.0, v2.1 or v3.0; lerobot converts others",
        )
    major = int(version[1])
    fps = body.get("fps")
    if (
        isinstance(fps, bool)
        or not isinstance(fps, int | float)
        or not _LEAST_FPS <= fps <= _MOST_FPS
    ):
        what = f"a number from {_LEAST_FPS} to {_MOST_FPS} was expected, above 0"
        raise place.at("$.fps").refuse(what, _MADE_BY)
    features = _features(place, body.get("features"))
    video = any(f.dtype == "video" for f in features.values())
    paths = {
        key: _template(place.at(f"$.{key}"), body.get(key), major)
        for key in ("data_path", *(("video_path",) if video else ()))
    }
    return Info(
        place,
        version,
        float(fps),
        features,
        paths["data_path"],
        paths.get("video_path"),
        _count(place, body, "chunks_size", 1) if "chunks_size" in body else 1000,
        _count(place, body, "total_episodes", 0),
        _count(place, body, "total_frames", 0),
    )


def _count(place: Place, body: Mapping[str, Any], key: str, least: int) -> int:
    value = body.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise place.at(f"$.{key}").refuse(f"a whole number from {least} was expected", _MADE_BY)
    return value


def _features(place: Place, value: Any) -> dict[str, Feature]:
    if not isinstance(value, dict):
        raise place.at("$.features").refuse("an object of features was expected", _MADE_BY)
    found = {}
    for name, entry in value.items():
        at = place.at(f"$.features.{name}")
        if not isinstance(entry, dict) or not isinstance(entry.get("dtype"), str):
            raise at.refuse("a feature has a dtype and a shape", _MADE_BY)
        shape = entry.get("shape")
        if not isinstance(shape, list) or not all(type(n) is int and n > 0 for n in shape):
            raise at.refuse("its shape is not a list of sizes", _MADE_BY)
        if "/" in name or ".." in name or "\\" in name:  # a camera's name is a folder's name
            raise at.refuse("a feature's name has no path in it", _MADE_BY)
        found[name] = Feature(name, entry["dtype"], tuple(shape))
    state = found.get(STATE)
    if state is not None and (len(state.shape) != 1 or not state.dtype.startswith("float")):
        at = place.at(f"$.features.{STATE}")
        raise at.refuse("a vector of floats was expected", _MADE_BY, Reason.SHAPE)
    return found


def _template(at: Place, value: Any, major: int) -> str:
    """A path with names of the layout in braces, and nothing that formatting could be misled by."""
    if not isinstance(value, str) or not value:
        raise at.refuse("a path with fields in braces was expected", _MADE_BY)
    try:
        parts = list(string.Formatter().parse(value))
    except ValueError as error:
        raise at.refuse(f"{value!r} is not a template: {error}", _MADE_BY) from error
    for _, field, spec, conversion in parts:
        if field is None:
            continue
        if field not in _FIELDS[major] or conversion or not _WIDTH.fullmatch(spec or ""):
            raise at.refuse(f"{{{field}:{spec}}} is not a field of this layout", _MADE_BY)
    if value.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", value):
        what = f"{value!r} leads out of the dataset"
        raise at.refuse(what, "name files inside it, without a leading / and without ..")
    return value
