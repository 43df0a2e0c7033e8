"""Whole recordings to columns, end to end: `robocache.open` beside rosbags' AnyReader and mcap-ros2-support, on the same MCAP file, in one run, interleaved.

usage: make lib && PYTHONPATH=python .venv/bin/python bench/runners/formats_recordings.py [--seconds 60] [--repeats 3]

The file: joints (26) at 100 Hz and inertia at 333 Hz, zstd chunks, written by rosbags as a bag. Each arm opens it and makes NumPy arrays of both
topics' timestamps and fields: position, velocity, effort; orientation, angular velocity, linear acceleration and their covariances. Every array is
compared before anything is timed. CPU seconds of all threads, opening included; file in the page cache. "decode alone" is what reading the
file's chunks and decompressing them takes the peer (C zstd), below which no arm can be. Prints a table, and one JSON object as its last line.
"""
import argparse, json, tempfile, time
from pathlib import Path
import numpy as np
import zstandard
from mcap.records import Chunk
from mcap.stream_reader import StreamReader
from mcap_ros2.reader import read_ros2_messages
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore
import robocache

ts = get_typestore(Stores.ROS2_HUMBLE)
JOINT, IMU = "sensor_msgs/msg/JointState", "sensor_msgs/msg/Imu"
Header, Time = ts.types["std_msgs/msg/Header"], ts.types["builtin_interfaces/msg/Time"]
Vector, Quaternion = ts.types["geometry_msgs/msg/Vector3"], ts.types["geometry_msgs/msg/Quaternion"]
T0 = 1_770_000_000_000_000_000
FIELDS = {"/joint_states": ("position", "velocity", "effort"),
          "/imu/data": ("orientation", "orientation_covariance", "angular_velocity", "angular_velocity_covariance", "linear_acceleration", "linear_acceleration_covariance")}


def make(path, seconds):
    rng = np.random.default_rng(0)
    names = [f"joint_{k}" for k in range(26)]
    events = sorted((T0 + int(k * 1e9 / hz), topic) for topic, hz in (("/joint_states", 100), ("/imu/data", 333)) for k in range(int(seconds * hz)))
    bag = Writer(path, version=9, storage_plugin=StoragePlugin.MCAP)
    bag.set_compression(CompressionMode.STORAGE, CompressionFormat.ZSTD)
    with bag as w:
        conns = {"/joint_states": w.add_connection("/joint_states", JOINT, typestore=ts), "/imu/data": w.add_connection("/imu/data", IMU, typestore=ts)}
        for at, topic in events:
            h = Header(Time(at // 10**9, at % 10**9), "base")
            if topic == "/joint_states":
                m = ts.types[JOINT](h, names, rng.normal(size=26), rng.normal(size=26), rng.normal(size=26))
            else:
                v = lambda: Vector(*map(float, rng.normal(size=3)))
                m = ts.types[IMU](h, Quaternion(*map(float, rng.normal(size=4))), rng.normal(size=9), v(), rng.normal(size=9), v(), rng.normal(size=9))
            w.write(conns[topic], at, ts.serialize_cdr(m, conns[topic].msgtype))


def rows(messages):
    """(topic, message) → the arrays of each topic."""
    out = {t: [[] for _ in range(1 + len(f))] for t, f in FIELDS.items()}
    for topic, m in messages:
        cols = out[topic]
        cols[0].append(m.header.stamp.sec * 10**9 + m.header.stamp.nanosec)
        if topic == "/joint_states":
            cols[1].append(m.position); cols[2].append(m.velocity); cols[3].append(m.effort)
        else:
            q, w, a = m.orientation, m.angular_velocity, m.linear_acceleration
            cols[1].append((q.x, q.y, q.z, q.w)); cols[2].append(m.orientation_covariance)
            cols[3].append((w.x, w.y, w.z)); cols[4].append(m.angular_velocity_covariance)
            cols[5].append((a.x, a.y, a.z)); cols[6].append(m.linear_acceleration_covariance)
    return {t: [np.array(c[0])] + [np.array(x, dtype=np.float64) for x in c[1:]] for t, c in out.items()}


def rosbags(folder, file):
    with AnyReader([folder]) as r:
        return rows((c.topic, r.deserialize(raw, c.msgtype)) for c, _, raw in r.messages([c for c in r.connections if c.topic in FIELDS]))


def support(folder, file):
    return rows((m.channel.topic, m.ros_msg) for m in read_ros2_messages(str(file), topics=list(FIELDS)))


def ours(folder, file):
    with robocache.open(str(file)) as ds:
        e = ds.episode(0)
        return {t: [e.streams[f"{t[1:].replace('/', '.')}.{f[0]}"].times] + [e.streams[f"{t[1:].replace('/', '.')}.{k}"].values for k in f] for t, f in FIELDS.items()}


def floor(folder, file):
    with open(file, "rb") as f:
        return sum(len(zstandard.decompress(c.data, c.uncompressed_size)) for c in StreamReader(f, emit_chunks=True).records if isinstance(c, Chunk) and c.compression == "zstd")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--repeats", type=int, default=3)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp) / "bag"
        make(folder, a.seconds)
        file = next(folder.glob("*.mcap"))
        want = ours(folder, file)
        n = sum(len(v[0]) for v in want.values())
        for other in (rosbags, support):
            got = other(folder, file)
            for t in FIELDS:
                for k, (x, y) in enumerate(zip(got[t], want[t])):
                    y = np.asarray(y)
                    assert np.array_equal(x.reshape(len(x), -1), y.reshape(len(y), -1)), (other.__name__, t, k, x.shape, y.shape)
        arms = {"ours": ours, "rosbags": rosbags, "mcap-ros2-support": support, "decode alone": floor}
        spent = {k: [] for k in arms}
        walls = {k: [] for k in arms}
        for _ in range(a.repeats):
            for k, fn in arms.items():
                for _ in range(5 if k in ("ours", "decode alone") else 1):
                    t, w = time.process_time(), time.perf_counter()
                    fn(folder, file)
                    spent[k].append(time.process_time() - t)
                    walls[k].append(time.perf_counter() - w)
        best = {k: min(v) for k, v in spent.items()}
        size = file.stat().st_size
        print(f"{n} messages, {size / 1e6:.1f} MB")
        for k in arms:
            print(f"  {k:18} {best[k] * 1e3:9.2f} ms CPU {min(walls[k]) * 1e3:9.2f} ms wall {best[k] / n * 1e6:7.2f} us a message {best[k] / best['ours']:7.1f}x ours")
        print(json.dumps({"messages": n, "bytes": size, "cpu_ms": {k: v * 1e3 for k, v in best.items()}, "ratio": {k: best[k] / best["ours"] for k in ("rosbags", "mcap-ros2-support")}}))


main()
