"""Writes a recording with video in messages, and what libavcodec decodes of it.

usage: python video.py OUT.mcap OUT.json h264=STREAM h265=STREAM

Packets are cut by PyAV's parser, messages serialised by rosbags, the file written by the mcap package. Topics: /cam/NAME (foxglove_msgs/CompressedVideo)
and /image/NAME (sensor_msgs/CompressedImage), a message a image at 30 Hz; /late/NAME begins behind the key frame and lacks message 20; /joints
(JointState) at 100 Hz beside them. The JSON has by NAME the MD5 of each image's planes as PyAV decodes the stream.
"""
import hashlib, json, sys
import av
import numpy as np
from mcap.writer import Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

T0 = 1_770_000_000_000_000_000
VIDEO = "builtin_interfaces/Time timestamp\nstring frame_id\nuint8[] data\nstring format\n"
ts = get_typestore(Stores.ROS2_HUMBLE)
ts.register(get_types_from_msg(VIDEO, "foxglove_msgs/msg/CompressedVideo"))
Time, Header = ts.types["builtin_interfaces/msg/Time"], ts.types["std_msgs/msg/Header"]


def packets(path):
    with av.open(path) as c:
        return [bytes(p) for p in c.demux(video=0) if p.size]


def sums(path):
    out = []
    with av.open(path) as c:
        for frame in c.decode(video=0):
            planes = [np.frombuffer(p, np.uint8).reshape(p.height, p.line_size)[:, :p.width].tobytes() for p in frame.planes]
            out.append(hashlib.md5(b"".join(planes)).hexdigest())
    return out


out, oracle, streams = sys.argv[1], sys.argv[2], dict(a.split("=", 1) for a in sys.argv[3:])
events, want = [], {}
for name, path in streams.items():
    want[name] = sums(path)
    for k, p in enumerate(packets(path)):
        at = T0 + k * 1_000_000_000 // 30
        stamp = Time(at // 10**9, at % 10**9)
        data = np.frombuffer(p, np.uint8)
        video = ts.types["foxglove_msgs/msg/CompressedVideo"](stamp, "cam", data, name)
        events.append((at, "/cam/" + name, "foxglove_msgs/msg/CompressedVideo", video))
        events.append((at, "/image/" + name, "sensor_msgs/msg/CompressedImage", ts.types["sensor_msgs/msg/CompressedImage"](Header(stamp, "cam"), name, data)))
        if k >= 5 and k != 20:
            events.append((at, "/late/" + name, "foxglove_msgs/msg/CompressedVideo", video))
for k in range(160):
    at = T0 + k * 10_000_000
    events.append((at, "/joints", "sensor_msgs/msg/JointState", ts.types["sensor_msgs/msg/JointState"](Header(Time(at // 10**9, at % 10**9), ""), ["a", "b"], np.array([k, -k], float), np.empty(0), np.empty(0))))
with open(out, "wb") as f:
    w = Writer(f, chunk_size=64 << 10)
    w.start(profile="ros2")
    channels, schemas = {}, {}
    for at, topic, typ, m in sorted(events, key=lambda e: e[0]):
        if typ not in schemas:
            text, _ = ts.generate_msgdef(typ, ros_version=2)
            schemas[typ] = w.register_schema(typ, "ros2msg", text.encode())
        if topic not in channels:
            channels[topic] = w.register_channel(topic, "cdr", schemas[typ])
        w.add_message(channels[topic], log_time=at + 3_000_000, publish_time=at + 1_000_000, data=bytes(ts.serialize_cdr(m, typ)))
    w.finish()
with open(oracle, "w") as f:
    json.dump(want, f)
