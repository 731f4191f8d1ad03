"""Robot datasets in LeRobot's layouts v2.1 and v3.0, read as frames; nothing of lerobot is needed.

The layouts as published by huggingface/lerobot: ``docs/source/lerobot-dataset-v3.mdx`` and, for
the file names, columns and keys, ``src/lerobot/datasets/utils.py`` (``DEFAULT_*_PATH`` and
``LEGACY_*_PATH``), ``dataset_metadata.py`` and ``v30/convert_dataset_v21_to_v30.py``.

v2.1: ``meta/info.json``, ``meta/tasks.jsonl`` (``task_index``, ``task``), ``meta/episodes.jsonl``
(``episode_index``, ``tasks``, ``length``), and one parquet file, and one video file for each
camera, an episode. v3.0: ``meta/tasks.parquet`` (``task_index``, the task as the index),
``meta/episodes/*/*.parquet`` (the same, with ``data/chunk_index``, ``data/file_index`` and
``videos/<camera>/{chunk_index,file_index,from_timestamp,to_timestamp}``), and many episodes in a
file. In both, rows hold ``episode_index``, ``frame_index``, ``task_index``, ``timestamp`` in
seconds, features by name, and images as ``struct<bytes, path>``.
"""

from flashrt.calibration.lerobot.dataset import Dataset, open_dataset
from flashrt.calibration.lerobot.draw import RobotSplit, robot_frames
from flashrt.calibration.lerobot.frame import RobotFrame

__all__ = ["Dataset", "RobotFrame", "RobotSplit", "open_dataset", "robot_frames"]
