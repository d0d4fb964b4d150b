"""Messages of ROS 1 bags, ROS 2 bags and MCAP files, of the topics that are asked for."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from safemil.data.bag_sizes import MCAP, check_mcap, check_ros1, check_ros2
from safemil.data.interchange import begins_with
from safemil.errors import InputError
from safemil.extras import require_extra

ROS1 = b"#ROSBAG V2.0"
METADATA = "metadata.yaml"  # of a ROS 2 bag, which is a folder


class Message(NamedTuple):
    """Message with the time at which it was recorded."""

    topic: str
    time: int  # ns
    content: Any


class Bag(NamedTuple):
    """Open bag: the type of each topic, and its messages."""

    topics: dict[str, str]
    messages: Iterator[Message]


def is_bag(path: Path) -> bool:
    """Whether the content of a file or folder is that of a bag."""
    return (path / METADATA).is_file() or begins_with(path, MCAP) or begins_with(path, ROS1)


@contextmanager
def opened(path: Path, topics: Iterable[str] = ()) -> Iterator[Bag]:
    """Open a bag; only messages of these topics are read."""
    require_extra("ros", "a bag")
    _check_size(path)
    with _mcap(path, [*topics]) if begins_with(path, MCAP) else _ros(path, {*topics}) as bag:
        yield bag


def _check_size(path: Path) -> None:
    if path.is_dir():
        check_ros2(path)
    else:
        (check_mcap if begins_with(path, MCAP) else check_ros1)(path)


@contextmanager
def _mcap(path: Path, topics: list[str]) -> Iterator[Bag]:
    from mcap.reader import make_reader
    from mcap_ros2.decoder import DecoderFactory

    with open(path, "rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        summary = reader.get_summary()
        channels, schemas = (summary.channels, summary.schemas) if summary else ({}, {})
        kinds = {
            channel.topic: schemas[channel.schema_id].name if channel.schema_id in schemas else "no schema"
            for channel in channels.values()
        }
        messages = (
            Message(channel.topic, message.log_time, content)
            for _, channel, message, content in reader.iter_decoded_messages(topics=topics)
        )
        yield Bag(kinds, messages)


@contextmanager
def _ros(path: Path, topics: set[str]) -> Iterator[Bag]:
    from rosbags.highlevel import AnyReader
    from rosbags.rosbag2 import Reader
    from rosbags.typesys import Stores, get_typestore

    # Bags of older ROS 2 releases hold no definitions of their messages.
    with AnyReader([path], default_typestore=get_typestore(Stores.ROS2_HUMBLE)) as reader:
        for each in reader.readers:
            if isinstance(each, Reader) and each.storage.metadata.compression_mode:
                raise InputError("its messages are compressed one by one; convert the bag to MCAP.")
        chosen = [connection for connection in reader.connections if connection.topic in topics]
        messages = (
            Message(connection.topic, time, reader.deserialize(raw, connection.msgtype))
            for connection, time, raw in (reader.messages(chosen) if chosen else ())
        )
        yield Bag({each.topic: each.msgtype for each in reader.connections}, messages)
