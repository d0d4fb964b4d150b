"""Valid datasets in the formats of other projects: LeRobot, Minari, bags of ROS; small, made once."""

import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LENGTHS = (5, 7)
MAPPING = """
bags = ["BAG"]
rate = 10
max_age = 2.0
action_low = [-2]
action_high = [2]
[observation]
speed = "/speed.data"
[action]
steer = "/steer.z"
"""
BAGS = ("ros1.bag", "ros2", "ros2_mcap", "file.mcap")
STORAGES = ("hdf5", "arrow", "parquet")


def build_foreign(folder: Path) -> None:
    """Write a dataset of every format."""
    for version in ("v2.1", "v3.0"):
        _lerobot(folder / f"lerobot-{version}", version)
    _minari(folder)
    for bag in BAGS:
        where = folder / f"bags-{bag}"
        where.mkdir()
        (where / "mapping.toml").write_text(MAPPING.replace("BAG", bag))
        _bag(where / bag)


def _lerobot(path: Path, version: str) -> None:
    """Write what LeRobot's documentation says of its format."""
    rng = np.random.default_rng(0)
    frames = sum(LENGTHS)
    columns = {
        "observation.state": pa.FixedSizeListArray.from_arrays(rng.normal(size=3 * frames).astype("f4"), 3),
        "action": pa.FixedSizeListArray.from_arrays(rng.uniform(-1, 1, 2 * frames).astype("f4"), 2),
        "next.reward": np.ones(frames, "f4"),
        "timestamp": np.concatenate([np.arange(each) / 10 for each in LENGTHS]).astype("f4"),
        "frame_index": np.concatenate([np.arange(each) for each in LENGTHS]),
        "episode_index": np.repeat(np.arange(len(LENGTHS)), LENGTHS),
        "index": np.arange(frames),
        "task_index": np.zeros(frames, np.int64),
    }
    table = pa.table(columns)
    features: dict[str, Any] = {name: {"dtype": str(table[name].type), "shape": [1]} for name in columns}
    features |= {name: {"dtype": "int64", "shape": [1]} for name in columns if "index" in name}
    features |= {name: {"dtype": "float32", "shape": [1]} for name in ("next.reward", "timestamp")}
    features["observation.state"] = {"dtype": "float32", "shape": [3], "names": ["x", "y", "speed"]}
    features["action"] = {"dtype": "float32", "shape": [2], "names": ["steer", "gas"]}
    info: dict[str, Any] = {"codebase_version": version, "robot_type": "car", "fps": 10}
    info |= {"total_episodes": len(LENGTHS), "total_frames": frames, "total_tasks": 1, "chunks_size": 1000}
    info |= {"features": features}
    episodes = [
        {"episode_index": number, "tasks": ["drive"], "length": length}
        for number, length in enumerate(LENGTHS)
    ]
    (path / "meta").mkdir(parents=True)
    (path / "data" / "chunk-000").mkdir(parents=True)
    if version == "v3.0":
        info["data_path"] = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
        pq.write_table(table, path / "data" / "chunk-000" / "file-000.parquet")
        rows = [{**each, "data/chunk_index": 0, "data/file_index": 0} for each in episodes]
        (path / "meta" / "episodes" / "chunk-000").mkdir(parents=True)
        pq.write_table(
            pa.Table.from_pylist(rows), path / "meta" / "episodes" / "chunk-000" / "file-000.parquet"
        )
    else:
        info["data_path"] = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
        starts = np.cumsum((0, *LENGTHS))
        for number, length in enumerate(LENGTHS):
            part = table.slice(starts[number], length)
            pq.write_table(part, path / "data" / "chunk-000" / f"episode_{number:06d}.parquet")
        lines = "".join(json.dumps(each) + "\n" for each in episodes)
        (path / "meta" / "episodes.jsonl").write_text(lines)
    (path / "meta" / "info.json").write_text(json.dumps(info))


def _minari(folder: Path) -> None:
    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    import minari
    from gymnasium.spaces import Box, Dict, Discrete
    from minari.data_collector import EpisodeBuffer

    rng = np.random.default_rng(0)
    about = dict.fromkeys(["algorithm_name", "author", "author_email", "code_permalink", "description"], "x")
    for storage in STORAGES:
        buffers = [
            EpisodeBuffer(
                id=number,
                observations={
                    "gap": rng.normal(size=(length + 1, 2)).astype(np.float32),
                    "lane": rng.integers(0, 3, length + 1),
                },
                actions=rng.uniform(-1, 1, (length, 2)).astype(np.float32),
                rewards=[1.0] * length,
                terminations=[False] * length,
                truncations=[False] * (length - 1) + [True],
                infos={"cost": [*rng.normal(size=length + 1)]},
            )
            for number, length in enumerate(LENGTHS)
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that no environment is recorded
            minari.create_dataset_from_buffers(
                f"minari-{storage}/x-v0",
                buffers,
                observation_space=Dict(gap=Box(-np.inf, np.inf, (2,)), lane=Discrete(3)),
                action_space=Box(-2, 2, (2,)),
                data_format=storage,
                **about,
            )


def _bag(path: Path) -> None:
    from mcap_ros2.writer import Writer as McapWriter
    from rosbags.rosbag1 import Writer as Ros1Writer
    from rosbags.rosbag2 import StoragePlugin
    from rosbags.rosbag2 import Writer as Ros2Writer
    from rosbags.typesys import Stores, get_typestore

    kinds = {"speed": "std_msgs/msg/Float64", "steer": "geometry_msgs/msg/Vector3"}
    drive = [(topic, (100 + i) * 10**8, i / 10) for i in range(8) for topic in kinds]
    if path.name == "file.mcap":
        texts = {"speed": "float64 data", "steer": "float64 x\nfloat64 y\nfloat64 z"}
        with open(path, "wb") as file:
            made = McapWriter(file)
            schemas = {topic: made.register_msgdef(kinds[topic], text) for topic, text in texts.items()}
            for topic, time, value in drive:
                content: Any = {"data": value} if topic == "speed" else {"x": 0.0, "y": 0.0, "z": value}
                made.write_message(f"/{topic}", schemas[topic], content, time)
            made.finish()
        return
    is_old = path.name == "ros1.bag"
    store = get_typestore(Stores.ROS1_NOETIC if is_old else Stores.ROS2_HUMBLE)
    plugin = StoragePlugin.MCAP if path.name == "ros2_mcap" else StoragePlugin.SQLITE3
    writer: Any = Ros1Writer(path) if is_old else Ros2Writer(path, version=9, storage_plugin=plugin)
    if is_old:
        writer.set_compression(Ros1Writer.CompressionFormat.BZ2)
    with writer:
        topics = {
            topic: writer.add_connection(f"/{topic}", kind, typestore=store) for topic, kind in kinds.items()
        }
        for topic, time, value in drive:
            kind = store.types[kinds[topic]]
            content = kind(value) if topic == "speed" else kind(0.0, 0.0, value)
            serialize = store.serialize_ros1 if is_old else store.serialize_cdr
            writer.write(topics[topic], time, serialize(content, kinds[topic]))
