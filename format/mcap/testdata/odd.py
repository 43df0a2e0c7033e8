"""Writes recordings whose video is not as it should be.

usage: python odd.py FOLDER A.h264 B.h264 C.hevc

FOLDER/odd.mcap: /late (CompressedVideo) and /image (CompressedImage) have 20 messages without data before the stream, /never has only such messages,
/sets only parameter sets, /dotted names its format "H.264". FOLDER/cams: one recording a stream, all on the topic /cam; a first one has no key frame.
"""
import sys
import av
import numpy as np
from mcap.writer import Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

T0 = 1_770_000_000_000_000_000
ts = get_typestore(Stores.ROS2_HUMBLE)
VIDEO, IMAGE = "foxglove_msgs/msg/CompressedVideo", "sensor_msgs/msg/CompressedImage"
ts.register(get_types_from_msg("builtin_interfaces/Time timestamp\nstring frame_id\nuint8[] data\nstring format\n", VIDEO))
Time, Header = ts.types["builtin_interfaces/msg/Time"], ts.types["std_msgs/msg/Header"]


def packets(path):
    with av.open(path) as c:
        return [bytes(p) for p in c.demux(video=0) if p.size]


def write(path, topics):
    """topics: name → (packets, format, type)."""
    with open(path, "wb") as f:
        w = Writer(f, chunk_size=8 << 10)
        w.start(profile="ros2")
        for name, (stream, form, typ) in topics.items():
            schema = w.register_schema(typ, "ros2msg", ts.generate_msgdef(typ, ros_version=2)[0].encode())
            channel = w.register_channel(name, "cdr", schema)
            for k, p in enumerate(stream):
                at = T0 + k * 1_000_000_000 // 30
                stamp, data = Time(at // 10**9, at % 10**9), np.frombuffer(p, np.uint8)
                m = ts.types[VIDEO](stamp, "", data, form) if typ == VIDEO else ts.types[IMAGE](Header(stamp, ""), form, data)
                w.add_message(channel, log_time=at, publish_time=at, data=bytes(ts.serialize_cdr(m, typ)))
        w.finish()


folder, (a, b, c) = sys.argv[1], map(packets, sys.argv[2:])
none = [b""] * 20
head = a[0][: a[0].index(b"\0\0\1\x65")]  # what stands before the first slice
write(folder + "/odd.mcap", {"/late": (none + a, "h264", VIDEO), "/image": (none + a, "h264", IMAGE), "/never": (none, "h264", VIDEO), "/sets": ([head] * 30, "h264", VIDEO),
                             "/dotted": (a, "H.264", VIDEO)})
for k, (stream, form) in enumerate([(a[1:3], "h264"), (a, "h264"), (b, "h264"), (c, "h265")]):
    write(f"{folder}/cams/{k}.mcap", {"/cam": (stream, form, VIDEO)})
