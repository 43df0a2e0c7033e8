"""Windows of time at random places of an MCAP file: format/mcap beside the indexed reader of the Python package, on the same file.

usage: .venv/bin/python bench/arms/formats_mcap.py [--seconds 30] [--windows 600] [--peer-windows 40] [--repeats 3]

The file: joints at 100 Hz and inertia at 333 Hz, raw pictures of 160x120 at 10 Hz between them, zstd chunks of 1 MiB, written by the mcap
package. A window is 0.5 s of one topic: its messages' log times and payloads (no decoding in any arm), or as columns (position, decoded). Both
arms keep the file open; ours also keeps decompressed chunks (64 MiB, the default), which theirs does not: so there are two figures, of windows that
are the first of the file to be read (a new process and cold chunks each few), and of all windows of a run that touches each chunk many times, as
training does. Every window's log times and payload bytes are compared by CRC before anything is timed. CPU seconds of one
thread; arms interleaved. Prints a table, and one JSON object as its last line.
"""
import argparse, io, json, os, struct, subprocess, tempfile, time, zlib
from pathlib import Path
from types import SimpleNamespace
import numpy as np
from mcap.reader import make_reader
from mcap.writer import CompressionType
from mcap_ros2.writer import Writer
from mcap_ros2.decoder import DecoderFactory
from rosbags.typesys import Stores, get_typestore

ROOT = Path(__file__).resolve().parents[2]
ts = get_typestore(Stores.ROS2_HUMBLE)
T0 = 1_770_000_000_000_000_000


def make(path, seconds):
    rng = np.random.default_rng(0)
    defs = {t: ts.generate_msgdef(t, ros_version=2)[0] for t in ("sensor_msgs/msg/JointState", "sensor_msgs/msg/Imu", "sensor_msgs/msg/Image")}
    names = [f"joint_{k}" for k in range(26)]
    head = lambda ns: SimpleNamespace(stamp=SimpleNamespace(sec=int(ns // 10**9), nanosec=int(ns % 10**9)), frame_id="base")
    events = []
    for topic, hz in (("/joint_states", 100), ("/imu/data", 333), ("/camera", 10)):
        events += [(T0 + int(k * 1e9 / hz), topic) for k in range(int(seconds * hz))]
    with open(path, "wb") as f:
        w = Writer(f, chunk_size=1 << 20, compression=CompressionType.ZSTD)
        schema = {t: w.register_msgdef(t, d) for t, d in defs.items()}
        for at, topic in sorted(events):
            h = head(at)
            if topic == "/joint_states":
                t, m = "sensor_msgs/msg/JointState", SimpleNamespace(header=h, name=names, position=rng.normal(size=26).tolist(), velocity=rng.normal(size=26).tolist(), effort=[])
            elif topic == "/imu/data":
                v = lambda n: [float(x) for x in rng.normal(size=n)]
                xyz = lambda: SimpleNamespace(x=v(1)[0], y=v(1)[0], z=v(1)[0])
                t, m = "sensor_msgs/msg/Imu", SimpleNamespace(header=h, orientation=SimpleNamespace(x=0.0, y=0.0, z=0.0, w=1.0), orientation_covariance=[0.0] * 9, angular_velocity=xyz(), angular_velocity_covariance=[0.0] * 9, linear_acceleration=xyz(), linear_acceleration_covariance=[0.0] * 9)
            else:
                t, m = "sensor_msgs/msg/Image", SimpleNamespace(header=h, height=120, width=160, encoding="rgb8", is_bigendian=0, step=480, data=rng.integers(0, 255, 120 * 160 * 3, dtype=np.uint8).tobytes())
            w.write_message(topic, schema[t], m, log_time=at, publish_time=at)
        w.finish()


def payloads(reader, topic, at, to):
    crc, n = 0, 0
    for _, _, m in reader.iter_messages(topics=[topic], start_time=at, ending_before=to):
        crc = zlib.crc32(m.data, zlib.crc32(struct.pack("<Q", m.log_time), crc))
        n += 1
    return n, crc


def columns(reader, topic, at, to):
    rows = [m.ros_msg.position if hasattr(m, "ros_msg") else m.decoded_message.position for m in reader.iter_decoded_messages(topics=[topic], start_time=at, ending_before=to)]
    a = np.array(rows, dtype=np.float64)
    return len(a), zlib.crc32(a.tobytes())


def ours(binary, path, windows, mode):
    """CPU seconds, and (messages, CRC) of each window."""
    lines = "\n".join(f"{t} {a} {b}" for t, a, b in windows)
    env = dict(os.environ, ROBOCACHE_MCAP=str(path), ROBOCACHE_WINDOWS=lines, ROBOCACHE_MODE=mode, GOMAXPROCS="1")
    out = subprocess.run([binary, "-test.run", "TestWindows$", "-test.v"], env=env, check=True, capture_output=True, text=True, cwd=ROOT / "format/mcap").stdout
    got = [tuple(map(int, x.split()[1:3])) for x in out.splitlines() if x.startswith("window:")]
    spent = [float(x.split()[3]) for x in out.splitlines() if x.startswith("window:")]
    return spent, got


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=30)
    p.add_argument("--windows", type=int, default=600)
    p.add_argument("--peer-windows", type=int, default=40)
    p.add_argument("--repeats", type=int, default=3)
    a = p.parse_args()
    rng = np.random.default_rng(2)
    result = {}
    with tempfile.TemporaryDirectory() as tmp:
        path, binary = os.path.join(tmp, "run.mcap"), os.path.join(tmp, "mcap.test")
        make(path, a.seconds)
        subprocess.run(["go", "test", "-c", "-o", binary, "./format/mcap"], check=True, cwd=ROOT)
        starts = T0 + (rng.random(a.windows) * (a.seconds - 0.5) * 1e9).astype(np.int64)
        for mode, topics, read in (("payloads", ("/joint_states", "/imu/data"), payloads), ("columns", ("/joint_states",), columns)):
            windows = [(topics[k % len(topics)], int(s), int(s) + 500_000_000) for k, s in enumerate(starts)]
            theirs = windows[: a.peer_windows]
            with open(path, "rb") as f:
                reader = make_reader(f, decoder_factories=[DecoderFactory()])
                reader.get_summary()
                want = [read(reader, *w) for w in theirs]
                _, got = ours(binary, path, windows, mode)
                assert got[: len(want)] == want, (mode, [x for x in zip(got, want) if x[0] != x[1]][:3])
                times = {"first": [], "run": [], "python": []}
                for k in range(a.repeats):
                    t = time.process_time()
                    for w in theirs:
                        read(reader, *w)
                    times["python"].append((time.process_time() - t) / len(theirs))
                    spent, _ = ours(binary, path, windows, mode)
                    times["run"].append(sum(spent) / len(spent))
                    times["first"].append(sum(spent[:5]) / 5)
            best = {k: min(v) * 1e3 for k, v in times.items()}
            result[mode] = {"ms_per_window": best, "ratio_run": best["python"] / best["run"], "ratio_first": best["python"] / best["first"], "messages": sum(n for n, _ in want) / len(want)}
            print(f"{mode}: a window of {result[mode]['messages']:.0f} messages: Python's indexed reader {best['python']:.2f} ms; ours {best['first']:.3f} ms at first ({result[mode]['ratio_first']:.0f}x), {best['run']:.4f} ms over {len(windows)} windows, opening of indexes included ({result[mode]['ratio_run']:.0f}x); file of {os.path.getsize(path) / 1e6:.0f} MB")
    print(json.dumps(result))


main()
