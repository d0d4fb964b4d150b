"""ROS bags and MCAP files that the packages rosbags and mcap-ros2-support write."""

import contextlib

import numpy as np
import pytest
from mcap_ros2.writer import Writer as McapWriter
from rosbags.rosbag1 import Writer as Ros1Writer
from rosbags.rosbag2 import StoragePlugin
from rosbags.rosbag2 import Writer as Ros2Writer
from rosbags.typesys import Stores, get_typestore

from safemil import extras
from safemil.data import load
from safemil.data.formats import read
from safemil.data.interchange import Options
from safemil.errors import InputError

STORE = {1: get_typestore(Stores.ROS1_NOETIC), 2: get_typestore(Stores.ROS2_HUMBLE)}
KINDS = {
    "speed": "std_msgs/msg/Float64",
    "steer": "geometry_msgs/msg/Vector3",
    "mission": "std_msgs/msg/String",
}
MAPPING = """
bags = ["{bags}"]
rate = 10
{more}
[observation]
speed = "/speed.data"
[action]
steer = "/steer.z"
"""


def content(topic, value, version=2):
    kind = STORE[version].types[KINDS[topic]]
    return kind(0.0, 0.0, value) if topic == "steer" else kind(value)


def write_ros(path, messages, version=2, storage=StoragePlugin.SQLITE3):
    """Write messages (topic, seconds, value) as a ROS 1 or ROS 2 bag."""
    store = STORE[version]
    writer = Ros1Writer(path) if version == 1 else Ros2Writer(path, version=9, storage_plugin=storage)
    with writer:
        topics = {
            topic: writer.add_connection(f"/{topic}", KINDS[topic], typestore=store)
            for topic in dict.fromkeys(topic for topic, _, _ in messages)
        }
        for topic, seconds, value in messages:
            serialize = store.serialize_ros1 if version == 1 else store.serialize_cdr
            raw = serialize(content(topic, value, version), KINDS[topic])
            writer.write(topics[topic], round(seconds * 1e9), raw)


def write_mcap(path, messages):
    texts = {"speed": "float64 data", "steer": "float64 x\nfloat64 y\nfloat64 z", "mission": "string data"}
    with open(path, "wb") as file:
        writer = McapWriter(file)
        schemas = {topic: writer.register_msgdef(KINDS[topic], text) for topic, text in texts.items()}
        for topic, seconds, value in messages:
            field = {"x": 0.0, "y": 0.0, "z": value} if topic == "steer" else {"data": value}
            writer.write_message(f"/{topic}", schemas[topic], field, round(seconds * 1e9))
        writer.finish()


WRITERS = {
    "ros1.bag": lambda path, messages: write_ros(path, messages, version=1),
    "ros2": write_ros,
    "ros2_mcap": lambda path, messages: write_ros(path, messages, storage=StoragePlugin.MCAP),
    "file.mcap": write_mcap,
}
# Speed every 0.1 s and steering every 0.25 s, which begins later.
DRIVE = sorted(
    [("speed", 100 + i / 10, float(i)) for i in range(21)]
    + [("steer", 100.25 + i / 4, i / 10) for i in range(8)],
    key=lambda message: message[1],
)


@pytest.fixture
def mapped(tmp_path):
    """Write a bag and a mapping of it; returns the path of the mapping."""

    def write(messages=DRIVE, bag="file.mcap", bags="file.mcap", more=""):
        WRITERS[bag](tmp_path / bag, messages)
        path = tmp_path / "mapping.toml"
        path.write_text(MAPPING.format(bags=bags, more=more))
        return path

    return write


@pytest.mark.parametrize("bag", WRITERS)
def test_each_kind_of_bag_gives_the_same_episode(bag, mapped):
    held = load(mapped(bag=bag, bags=bag))
    assert held.ids.tolist() == [bag]
    assert held.observation_size == held.action_size == 1
    # Steps at 100.25, 100.35, ...: the last speed was measured at 100.2, 100.3, ...
    np.testing.assert_allclose(held.observations[:, 0], range(2, 20), atol=1e-6)
    steers = np.floor((np.arange(18) / 10 + 1e-9) / 0.25) / 10
    np.testing.assert_allclose(held.actions[:, 0], steers, atol=1e-6)


@pytest.mark.parametrize(("value", "speeds"), [("last", [0, 0, 1, 2]), ("nearest", [0, 1, 2, 3])])
def test_nearest_values_may_come_from_later_messages(value, speeds, mapped):
    late = [("speed", i / 10 + (0.02 if i else 0), i) for i in range(4)]
    messages = sorted([("steer", i / 10, 0.0) for i in range(4)] + late, key=lambda message: message[1])
    assert load(mapped(messages, more=f'value = "{value}"')).observations[:, 0].tolist() == speeds


def test_a_value_that_is_too_old_is_missing(mapped):
    messages = [each for each in DRIVE if each[0] == "steer" or not 100.6 < each[1] < 101.4]
    with pytest.raises(InputError, match=r'"speed" is empty'):
        load(mapped(messages, more="max_age = 0.3"))
    assert load(mapped(messages, more="max_age = 0.8")).steps == 18


def test_steps_without_a_value_at_the_ends_are_left_out(mapped):
    messages = [each for each in DRIVE if each[0] == "speed" or each[1] < 101]
    assert load(mapped(messages, more="max_age = 0.5")).steps == 11  # 100.25 to 101.25


@pytest.mark.parametrize("bag", ["ros1.bag", "ros2", "file.mcap"])
def test_a_topic_cuts_episodes(bag, mapped):
    missions = [
        ("mission", 100.0, "a"),
        ("mission", 100.55, ""),
        ("mission", 100.85, "b"),
        ("mission", 101.45, "c"),
    ]
    messages = sorted(DRIVE + missions, key=lambda message: message[1])
    held = load(mapped(messages, bag=bag, bags=bag, more='episode = "/mission.data"\nmax_age = 5'))
    assert held.ids.tolist() == [f"{bag} {number}" for number in range(3)]
    assert held.lengths.tolist() == [3, 6, 6]
    starts = held.step_values[held.starts] - np.datetime64(0, "ns")
    assert (starts / np.timedelta64(1, "s")).round(3).tolist() == [100.25, 100.85, 101.45]


def test_several_bags_and_patterns_are_read(mapped, tmp_path):
    write_ros(tmp_path / "more", DRIVE)
    write_mcap(tmp_path / "second.mcap", DRIVE)
    path = mapped(bags='*.mcap", "more')
    assert load(path).ids.tolist() == ["file.mcap", "more", "second.mcap"]


def test_bounds_and_other_columns_come_from_the_mapping(mapped):
    path = mapped(more="action_low = -2\naction_high = 2\n[other]\nreward = '/speed.data'\n")
    contents = read(path, Options())
    assert contents.trajectories.action_high.tolist() == [2]
    again = read(path, contents.trajectories.reading).trajectories
    assert again.content_hash() == contents.trajectories.content_hash()
    assert contents.rewards.tolist() == contents.trajectories.observations[:, 0].tolist()


@pytest.mark.parametrize("bag", WRITERS)
def test_a_bag_without_a_mapping_is_explained(bag, mapped, tmp_path):
    mapped(bag=bag)
    with pytest.raises(InputError, match=r"(?s)needs a TOML file.*/speed \(std_msgs/msg/Float64\), /steer"):
        load(tmp_path / bag)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("rate = 10", "rate = 'fast'"), '"rate" must be a positive number'),
        (("rate = 10", "rate = nan"), '"rate" must be a positive number'),
        (("rate = 10", "rate = 1e12"), "would have .* steps at a rate of 1e.12, more than 10,000,000"),
        (("rate = 10", "rate = 10\nspeed = 1"), 'no key "speed"'),
        (("rate = 10", "rate = 10\nmax_age = 0"), '"max_age" must be a positive number'),
        (("rate = 10", "rate = 10\nmax_age = 1e-9"), "no step at which every column has a value"),
        (("rate = 10", "rate = 10\nvalue = 'mean'"), '"value" must be "last" or "nearest"'),
        (("rate = 10", "rate = 10\naction_low = 1"), "action bounds come in pairs"),
        (("rate = 10", "rate = 10\nepisode = 3"), '"episode" must name a topic and a field'),
        (('["file.mcap"]', "3"), '"bags" must be a list'),
        (("file.mcap", "none.mcap"), r'there is no bag "none\.mcap"'),
        (("file.mcap", "../file.mcap"), "must be in the folder of the mapping"),
        (("file.mcap", "/tmp/file.mcap"), "must be in the folder of the mapping"),
        (("file.mcap", "**bad"), 'the pattern "..bad" is damaged|there is no bag'),
        (("/speed.data", "/sped.data"), r'no message in file\.mcap of topic "/sped"; did you mean "/speed"'),
        (("/speed.data", "/speed.dat"), r'"speed" is /speed\.dat, but the messages of /speed have no'),
        (("/speed.data", "/speed.data[4]"), "have no number or text there"),
        (("/speed.data", "/speed.__class__"), "must name a topic and a field"),
        (("/speed.data", "speed"), "must name a topic and a field"),
        (("speed = ", "'a,b' = "), "can't be called"),
        (("steer = ", "speed = "), 'the column "speed" is in two tables'),
        (('[action]\nsteer = "/steer.z"', ""), r"need a table \[action\]"),
        (("/speed.data", "/mission.data"), '"speed" must hold numbers'),
    ],
)
def test_a_wrong_mapping_is_refused(change, message, mapped):
    path = mapped([*DRIVE, ("mission", 102.0, "a")])
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(InputError, match=message):
        load(path)


@pytest.mark.parametrize("bag", WRITERS)
def test_damaged_bags_are_answered_with_one_message(bag, mapped, tmp_path):
    path = mapped(bag=bag, bags=bag)
    rng = np.random.default_rng(0)
    file = tmp_path / bag
    for part in sorted(file.iterdir()) if file.is_dir() else [file]:
        whole = part.read_bytes()
        for _ in range(15):
            broken = bytearray(whole[: rng.integers(1, len(whole) + 1)])
            broken[rng.integers(len(broken))] ^= int(rng.integers(1, 256))
            part.write_bytes(broken)
            with contextlib.suppress(InputError):
                load(path)
        part.write_bytes(whole)
    assert load(path).steps == 18


def test_a_missing_extra_is_named(mapped, monkeypatch):
    path = mapped()
    monkeypatch.setitem(extras.EXTRAS, "ros", ("no_such_package",))
    with pytest.raises(InputError, match=r"a bag needs no_such_package.*pip install 'safemil\[ros\]'"):
        load(path)
