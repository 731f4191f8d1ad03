"""A small robot dataset from a simulator: three tasks, several episodes each, in LeRobot's layouts.

The simulator is gym-pusht; it draws in no window. Scripted policies act on what the simulator
says, so every frame was simulated: none is drawn from a random generator.

    pip install gym-pusht==0.1.8 pyarrow pillow      # and av for --video
    python examples/make_pusht_dataset.py --out build/pusht --layout v2.1
    flashrt calibrate --host tiny:pi0 --frames lerobot:build/pusht

The sample under ``tests/calibration/data`` is ``--episodes 2 --frames 12`` in either layout.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SIZE, FPS, EVERY = 96, 5, 2  # pixels, observations a second, control steps between observations
CAMERA, CHUNK = "observation.image", 1000
Array = np.ndarray
Policy = Callable[[Array, Array, float], Array]


def push_to_goal(agent: Array, block: Array, _time: float) -> Array:
    """Go behind the block as seen from the goal, then through it."""
    goal = np.array([256.0, 256.0])
    away = (block - goal) / max(float(np.linalg.norm(block - goal)), 1.0)
    behind = block + 90 * away
    return goal if np.linalg.norm(agent - behind) < 45 else behind


def circle(_agent: Array, block: Array, time: float) -> Array:
    """Round the block at a distance that does not touch it."""
    return block + 150 * np.array([math.cos(1.6 * time), math.sin(1.6 * time)])


def to_wall(agent: Array, block: Array, _time: float) -> Array:
    """Push the block to the left."""
    right = block + np.array([85.0, 0.0])
    return np.array([40.0, block[1]]) if np.linalg.norm(agent - right) < 45 else right


TASKS: tuple[tuple[str, Policy], ...] = (
    ("Push the T-shaped block onto the T-shaped target.", push_to_goal),
    ("Move around the block without touching it.", circle),
    ("Push the block to the left wall.", to_wall),
)


def simulate(task: int, length: int, seed: int) -> Iterator[dict[str, Any]]:
    """``length`` observations of one episode, each with the action that followed it."""
    import gymnasium

    # gymnasium imports the module before the colon, which registers the environment.
    env = gymnasium.make(
        "gym_pusht:gym_pusht/PushT-v0",
        obs_type="pixels_agent_pos",
        render_mode="rgb_array",
        observation_width=SIZE,
        observation_height=SIZE,
    )
    seen, _ = env.reset(seed=seed)
    for step in range(length):
        block = np.array(env.unwrapped.block.position)
        action = TASKS[task][1](np.array(seen["agent_pos"]), block, step / FPS)
        action = np.clip(action, 0, 512).astype(np.float32)
        before, reward = seen, 0.0
        for _ in range(EVERY):
            seen, reward, _, _, _ = env.step(action)
        yield {
            CAMERA: np.asarray(before["pixels"], dtype=np.uint8),
            "observation.state": np.asarray(before["agent_pos"], dtype=np.float32),
            "action": action,
            "next.reward": np.float32(reward),
            "next.done": step == length - 1,
            "frame_index": step,
            "timestamp": np.float32(step / FPS),
            "task_index": task,
        }
    env.close()


def episodes(each: int, frames: int, seed: int) -> Iterator[list[dict[str, Any]]]:
    """Task ``t`` has ``each + t`` episodes of ``frames`` observations, give or take three."""
    plan = [task for task in range(len(TASKS)) for _ in range(each + task)]
    lengths = np.random.default_rng(seed).integers(frames - 3, frames + 4, size=len(plan))
    first = 0
    for index, (task, length) in enumerate(zip(plan, lengths.tolist(), strict=True)):
        rows = list(simulate(task, length, 1000 * seed + index))
        for row in rows:
            row["episode_index"] = index
            row["index"] = first + row["frame_index"]
        first += length
        yield rows


def png(pixels: Array) -> bytes:
    """An image [H, W, 3] uint8 as PNG."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def table(rows: list[dict[str, Any]], *, video: bool) -> pa.Table:
    """Rows as the layouts keep them: images as ``struct<bytes, path>``, unless they are video."""
    columns: dict[str, pa.Array] = {}
    if not video:
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        images = [
            {"bytes": png(r[CAMERA]), "path": f"frame-{r['frame_index']:06d}.png"} for r in rows
        ]
        columns[CAMERA] = pa.array(images, kind)
    for name in ("observation.state", "action"):
        columns[name] = pa.array([r[name].tolist() for r in rows], pa.list_(pa.float32(), 2))
    scalars = (
        ("timestamp", pa.float32()),
        ("next.reward", pa.float32()),
        ("next.done", pa.bool_()),
    )
    for name, scalar in scalars:
        columns[name] = pa.array([r[name] for r in rows], scalar)
    for name in ("frame_index", "episode_index", "index", "task_index"):
        columns[name] = pa.array([r[name] for r in rows], pa.int64())
    made = pa.table(columns)
    hint = {"info": {"features": {CAMERA: {"_type": "Image"}}}}
    return made if video else made.replace_schema_metadata({"huggingface": json.dumps(hint)})


def statistics(rows: list[dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Minimum, maximum, mean, deviation and count of the vectors, as the layouts record them."""
    found = {}
    for name in ("observation.state", "action"):
        values = np.stack([r[name] for r in rows]).astype(np.float64)
        found[name] = {
            "min": values.min(0).tolist(),
            "max": values.max(0).tolist(),
            "mean": values.mean(0).tolist(),
            "std": values.std(0).tolist(),
            "count": [len(rows)],
        }
    return found


def info(layout: str, made: list[list[dict[str, Any]]], *, video: bool) -> dict[str, Any]:
    """``meta/info.json``."""
    vector = {"dtype": "float32", "shape": [2], "names": {"motors": ["x", "y"]}}
    picture = {
        "dtype": "video" if video else "image",
        "shape": [SIZE, SIZE, 3],
        "names": ["height", "width", "channel"],
    }
    one = {"shape": [1], "names": None}
    whole = ("frame_index", "episode_index", "index", "task_index")
    body = {
        "codebase_version": layout,
        "robot_type": "pusht",
        "total_episodes": len(made),
        "total_frames": sum(map(len, made)),
        "total_tasks": len(TASKS),
        "chunks_size": CHUNK,
        "fps": FPS,
        "splits": {"train": f"0:{len(made)}"},
        "features": {
            CAMERA: picture,
            "observation.state": vector,
            "action": vector,
            "timestamp": {"dtype": "float32", **one},
            "next.reward": {"dtype": "float32", **one},
            "next.done": {"dtype": "bool", **one},
            **{name: {"dtype": "int64", **one} for name in whole},
        },
    }
    if layout == "v2.1":
        name = "chunk-{episode_chunk:03d}/%sepisode_{episode_index:06d}.%s"
        extra = {"total_videos": len(made) if video else 0, "total_chunks": 1}
        paths = (f"data/{name % ('', 'parquet')}", f"videos/{name % ('{video_key}/', 'mp4')}")
    else:
        name = "chunk-{chunk_index:03d}/file-{file_index:03d}"
        extra = {"data_files_size_in_mb": 100, "video_files_size_in_mb": 200}
        paths = (f"data/{name}.parquet", f"videos/{{video_key}}/{name}.mp4")
    return body | extra | {"data_path": paths[0], "video_path": paths[1] if video else None}


def write_json(path: Path, *values: Any, lines: bool = False) -> None:
    """One JSON value, or several as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = [json.dumps(v, indent=None if lines else 4, ensure_ascii=False) for v in values]
    path.write_text("\n".join(text) + "\n", encoding="utf-8")


def write_table(path: Path, content: pa.Table) -> None:
    """Parquet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(content, path, compression="zstd")


def write_video(path: Path, frames: list[Array]) -> None:
    """H.264 at the dataset's rate."""
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=FPS)
        stream.width, stream.height, stream.pix_fmt = SIZE, SIZE, "yuv444p"
        stream.options = {"crf": "10"}
        for pixels in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())


def write_v21(root: Path, made: list[list[dict[str, Any]]], *, video: bool) -> None:
    """One parquet file, and one video file for each camera, an episode."""
    listed, stats = [], []
    for index, rows in enumerate(made):
        write_table(root / f"data/chunk-000/episode_{index:06d}.parquet", table(rows, video=video))
        task = TASKS[rows[0]["task_index"]][0]
        listed.append({"episode_index": index, "tasks": [task], "length": len(rows)})
        stats.append({"episode_index": index, "stats": statistics(rows)})
        if video:
            place = root / f"videos/chunk-000/{CAMERA}/episode_{index:06d}.mp4"
            write_video(place, [r[CAMERA] for r in rows])
    tasks = [{"task_index": i, "task": text} for i, (text, _) in enumerate(TASKS)]
    write_json(root / "meta/tasks.jsonl", *tasks, lines=True)
    write_json(root / "meta/episodes.jsonl", *listed, lines=True)
    write_json(root / "meta/episodes_stats.jsonl", *stats, lines=True)


def write_v30(root: Path, made: list[list[dict[str, Any]]], *, video: bool) -> None:
    """Many episodes in one file, found by ``meta/episodes``."""
    write_table(
        root / "data/chunk-000/file-000.parquet",
        pa.concat_tables([table(rows, video=video) for rows in made]),
    )
    listed = []
    for index, rows in enumerate(made):
        start = rows[0]["index"]
        entry = {
            "episode_index": index,
            "tasks": [TASKS[rows[0]["task_index"]][0]],
            "length": len(rows),
            "data/chunk_index": 0,
            "data/file_index": 0,
            "dataset_from_index": start,
            "dataset_to_index": start + len(rows),
            "meta/episodes/chunk_index": 0,
            "meta/episodes/file_index": 0,
        }
        if video:
            key = f"videos/{CAMERA}"
            entry |= {f"{key}/chunk_index": 0, f"{key}/file_index": 0}
            entry |= {f"{key}/from_timestamp": start / FPS}
            entry |= {f"{key}/to_timestamp": (start + len(rows)) / FPS}
        for feature, values in statistics(rows).items():
            entry |= {f"stats/{feature}/{k}": v for k, v in values.items()}
        listed.append(entry)
    write_table(root / "meta/episodes/chunk-000/file-000.parquet", pa.Table.from_pylist(listed))
    if video:
        place = root / f"videos/{CAMERA}/chunk-000/file-000.mp4"
        write_video(place, [r[CAMERA] for rows in made for r in rows])
    # pandas reads this with the task as the index, as LeRobot's own reader expects
    hint = {
        "index_columns": ["__index_level_0__"],
        "column_indexes": [],
        "columns": [
            {"name": name, "field_name": field, "pandas_type": kind, "numpy_type": dtype}
            for name, field, kind, dtype in (
                ("task_index", "task_index", "int64", "int64"),
                (None, "__index_level_0__", "unicode", "object"),
            )
        ],
        "pandas_version": "2.2.3",
    }
    tasks = pa.table(
        {
            "task_index": pa.array(range(len(TASKS)), pa.int64()),
            "__index_level_0__": [text for text, _ in TASKS],
        }
    )
    write_table(
        root / "meta/tasks.parquet", tasks.replace_schema_metadata({"pandas": json.dumps(hint)})
    )
    write_json(root / "meta/stats.json", statistics([r for rows in made for r in rows]))


def main() -> int:
    """Simulate and write; exit 2 where the simulator is not installed or the folder exists."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", required=True, type=Path, help="a new folder")
    parser.add_argument("--layout", choices=("v2.1", "v3.0"), default="v3.0")
    parser.add_argument("--episodes", type=int, default=4, help="of the first task")
    parser.add_argument("--frames", type=int, default=24, help="in an episode, give or take three")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--video", action="store_true", help="frames as video, not as images")
    args = parser.parse_args()
    if args.out.exists():
        print(f"{args.out} exists; name a new folder", file=sys.stderr)
        return 2
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    try:
        made = list(episodes(args.episodes, args.frames, args.seed))
    except ImportError as error:
        print(f"{error}; pip install gym-pusht==0.1.8", file=sys.stderr)
        return 2
    (write_v21 if args.layout == "v2.1" else write_v30)(args.out, made, video=args.video)
    write_json(args.out / "meta/info.json", info(args.layout, made, video=args.video))
    print(f"{sum(map(len, made))} frames, {len(made)} episodes, {len(TASKS)} tasks: {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
