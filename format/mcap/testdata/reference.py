"""Reads a written MCAP file with the mcap package (CRCs checked) and its ROS 2 support, decodes every message again with rosbags, and opens it with that."""
import sys
from pathlib import Path
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from rosbags.highlevel import AnyReader
from rosbags.typesys import Stores, get_typestore

path = sys.argv[1]
types = get_typestore(Stores.ROS2_HUMBLE)
counts, last = {}, -1
with open(path, "rb") as f:
    reader = make_reader(f, validate_crcs=True, decoder_factories=[DecoderFactory()])
    summary = reader.get_summary()
    assert reader.get_header().profile == "ros2"
    assert summary.statistics.chunk_count == len(summary.chunk_indexes) > 0
    assert [m.name for m in reader.iter_metadata()] == ["robocache"]
    for schema, channel, message, decoded in reader.iter_decoded_messages():
        assert schema.encoding == "ros2msg" and channel.message_encoding == "cdr"
        assert message.log_time >= last
        last = message.log_time
        n = counts.get(channel.topic, 0)
        assert message.sequence == n, (channel.topic, message.sequence, n)
        counts[channel.topic] = n + 1
        other = types.deserialize_cdr(message.data, schema.name)
        if schema.name.endswith("MultiArray"):
            assert list(other.data) == list(decoded.data), channel.topic
        elif hasattr(other, "data"):
            assert bytes(other.data) == bytes(decoded.data) if not isinstance(other.data, str) else other.data == decoded.data
        if hasattr(other, "header"):
            assert other.header.stamp.sec * 10**9 + other.header.stamp.nanosec == message.log_time
    by_topic = {summary.channels[i].topic: n for i, n in summary.statistics.channel_message_counts.items()}
    assert by_topic == counts, (by_topic, counts)
    assert sum(counts.values()) == summary.statistics.message_count
    assert summary.statistics.message_end_time == last
# rosbags opens the file itself, as its users do: every topic with all of its messages.
with AnyReader([Path(path)], default_typestore=types) as bag:
    read = {}
    for connection, time, raw in bag.messages():
        bag.deserialize(raw, connection.msgtype)
        read[connection.topic] = read.get(connection.topic, 0) + 1
assert read == counts, (read, counts)
print(counts)
