"""Full decode of ROS 2 messages to columns: format/ros2 beside mcap-ros2-support and rosbags, on the same payloads, in one run, interleaved.

usage: .venv/bin/python bench/runners/formats_ros2.py [--messages 20000] [--repeats 3]

Payloads lie in memory; decoding them to one NumPy array a field (ours: one column a field) is what is timed, by CPU seconds of one thread.
Every value is compared before anything is timed. Prints a table, and one JSON object as its last line.
"""
import argparse, json, os, struct, subprocess, tempfile, time
from pathlib import Path
from types import SimpleNamespace
import numpy as np
from mcap_ros2.decoder import DecoderFactory
from rosbags.typesys import Stores, get_typestore

ROOT = Path(__file__).resolve().parents[2]
ts = get_typestore(Stores.ROS2_HUMBLE)
JOINT, IMU = "sensor_msgs/msg/JointState", "sensor_msgs/msg/Imu"
Header, Time = ts.types["std_msgs/msg/Header"], ts.types["builtin_interfaces/msg/Time"]
Vector, Quaternion = ts.types["geometry_msgs/msg/Vector3"], ts.types["geometry_msgs/msg/Quaternion"]


def payloads(kind, n):
    rng = np.random.default_rng(1)
    names = [f"joint_{k}" for k in range(26)]
    out = []
    for k in range(n):
        h = Header(Time(1700000000 + k // 100, k % 100 * 10_000_000), "base_link")
        if kind == JOINT:
            m = ts.types[JOINT](h, names, rng.normal(size=26), rng.normal(size=26), rng.normal(size=26))
        else:
            m = ts.types[IMU](h, Quaternion(*map(float, rng.normal(size=4))), rng.normal(size=9), Vector(*map(float, rng.normal(size=3))), rng.normal(size=9), Vector(*map(float, rng.normal(size=3))), rng.normal(size=9))
        out.append(bytes(ts.serialize_cdr(m, kind)))
    return out


def columns(kind, decode, data):
    """The timestamps, and one array a field."""
    timestamp, cols = [], [[] for _ in range(3 if kind == JOINT else 6)]
    for raw in data:
        m = decode(raw)
        timestamp.append(m.header.stamp.sec * 10**9 + m.header.stamp.nanosec)
        if kind == JOINT:
            cols[0].append(m.position); cols[1].append(m.velocity); cols[2].append(m.effort)
        else:
            q, w, a = m.orientation, m.angular_velocity, m.linear_acceleration
            cols[0].append((q.x, q.y, q.z, q.w)); cols[1].append(m.orientation_covariance)
            cols[2].append((w.x, w.y, w.z)); cols[3].append(m.angular_velocity_covariance)
            cols[4].append((a.x, a.y, a.z)); cols[5].append(m.linear_acceleration_covariance)
    return [np.array(timestamp)] + [np.array(c, dtype=np.float64) for c in cols]


def peers(kind):
    text, _ = ts.generate_msgdef(kind, ros_version=2)
    support = DecoderFactory().decoder_for("cdr", SimpleNamespace(id=1, name=kind, encoding="ros2msg", data=text.encode()))
    return {"mcap-ros2-support": support, "rosbags": lambda raw: ts.deserialize_cdr(raw, kind)}


def ours(binary, file, kind, n, dump=""):
    env = dict(os.environ, ROBOCACHE_PAYLOADS=str(file), ROBOCACHE_TYPE=kind, ROBOCACHE_DUMP=dump, GOMAXPROCS="1")
    out = subprocess.run([binary, "-test.run", "TestPayloads", "-test.v"], env=env, check=True, capture_output=True, text=True, cwd=ROOT / "format/ros2").stdout
    line = next(x for x in out.splitlines() if "payloads:" in x)
    return float(line.split("payloads:")[1].split()[0]) / n


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--messages", type=int, default=20000)
    p.add_argument("--repeats", type=int, default=3)
    a = p.parse_args()
    result = {}
    with tempfile.TemporaryDirectory() as tmp:
        binary = os.path.join(tmp, "ros2.test")
        subprocess.run(["go", "test", "-c", "-o", binary, "./format/ros2"], check=True, cwd=ROOT)
        for kind in (JOINT, IMU):
            data = payloads(kind, a.messages)
            file, dump = os.path.join(tmp, "payloads"), os.path.join(tmp, "dump")
            with open(file, "wb") as f:
                for d in data:
                    f.write(struct.pack("<I", len(d)) + d)
            ours(binary, file, kind, a.messages, dump)
            mine = open(dump, "rb").read()
            for name, decode in peers(kind).items():
                want = b"".join(np.ascontiguousarray(c).tobytes() for c in columns(kind, decode, data))
                assert want == mine, f"{name} differs on {kind}"
            times = {"ours": [], "mcap-ros2-support": [], "rosbags": []}
            for _ in range(a.repeats):
                for name, decode in peers(kind).items():
                    t = time.process_time()
                    columns(kind, decode, data)
                    times[name].append((time.process_time() - t) / a.messages)
                times["ours"].append(ours(binary, file, kind, a.messages))
            best = {k: min(v) * 1e6 for k, v in times.items()}
            result[kind] = {"us_per_message": best, "ratio": {k: best[k] / best["ours"] for k in best if k != "ours"}, "bytes": len(data[0])}
            print(f"{kind}: " + ", ".join(f"{k} {v:.3f} us" for k, v in best.items()) + "; " + ", ".join(f"{v:.0f}x {k}" for k, v in result[kind]["ratio"].items()))
    print(json.dumps(result))


main()
