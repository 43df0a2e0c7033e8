"""Windows of time at random places of an MCAP file: format/mcap beside the indexed reader of the Python package, on the same file.

usage: .venv/bin/python bench/runners/formats_mcap.py [--seconds 30] [--windows 600] [--peer-windows 40] [--repeats 3] [--compression zstd|lz4|none]

The file: joints at 100 Hz and inertia at 333 Hz, raw images of 160x120 at 10 Hz between them, zstd chunks of 1 MiB, written by the mcap
package. A window is 0.5 s of one topic: its messages' log times and payloads (no decoding in any arm), or as columns (position, decoded). Both
arms keep the file open; ours also keeps decompressed chunks (64 MiB, the default), which theirs does not: so there are three figures. "first": the
first five windows of a new process, with the reading of the index. "cold": all windows with a cache that holds no chunk: each window opens its
chunks anew, as in a file that is many times as large as the cache. "run": all windows with the cache, as training does.

The floor of a cold window is opening its chunks, which the peer and we both must: it is measured in the same run, by the peer's own decompressor
(C) on the chunks' bytes in memory, and by ours with reading and check sum. "at most" is what the ratio would be if all else cost nothing.
Every window's log times and payload bytes are compared by CRC before anything is timed. CPU seconds of one
thread; arms interleaved. Prints a table, and one JSON object as its last line.
"""
import argparse, json, os, struct, subprocess, tempfile, time, zlib
from pathlib import Path
from types import SimpleNamespace
import lz4.frame
import numpy as np
import zstandard
from mcap.reader import make_reader
from mcap.records import Chunk
from mcap.stream_reader import StreamReader
from mcap.writer import CompressionType
from mcap_ros2.writer import Writer
from mcap_ros2.decoder import DecoderFactory
from rosbags.typesys import Stores, get_typestore

ROOT = Path(__file__).resolve().parents[2]
ts = get_typestore(Stores.ROS2_HUMBLE)
T0 = 1_770_000_000_000_000_000


def make(path, seconds, compression):
    rng = np.random.default_rng(0)
    defs = {t: ts.generate_msgdef(t, ros_version=2)[0] for t in ("sensor_msgs/msg/JointState", "sensor_msgs/msg/Imu", "sensor_msgs/msg/Image")}
    names = [f"joint_{k}" for k in range(26)]
    head = lambda ns: SimpleNamespace(stamp=SimpleNamespace(sec=int(ns // 10**9), nanosec=int(ns % 10**9)), frame_id="base")
    events = []
    for topic, hz in (("/joint_states", 100), ("/imu/data", 333), ("/camera", 10)):
        events += [(T0 + int(k * 1e9 / hz), topic) for k in range(int(seconds * hz))]
    with open(path, "wb") as f:
        w = Writer(f, chunk_size=1 << 20, compression=CompressionType[compression.upper()])
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


def touched(chunks, windows):
    """How many chunks a window touches, by the index of chunks."""
    return sum(sum(c.message_start_time < to and c.message_end_time >= at for c in chunks) for _, at, to in windows) / len(windows)


def floor(path):
    """CPU seconds of opening one chunk with the peer's decompressor, its bytes in memory."""
    with open(path, "rb") as f:
        chunks = [r for r in StreamReader(f, emit_chunks=True).records if isinstance(r, Chunk)]
    best = []
    for _ in range(6):
        t = time.process_time()
        for c in chunks:
            if c.compression == "zstd":
                zstandard.decompress(c.data, c.uncompressed_size)
            elif c.compression == "lz4":
                lz4.frame.decompress(c.data)
        best.append((time.process_time() - t) / len(chunks))
    return min(best)


def go(binary, path, **env):
    env = dict(os.environ, ROBOCACHE_MCAP=str(path), GOMAXPROCS="1", **env)
    return subprocess.run([binary, "-test.run", "TestWindows$", "-test.v"], env=env, check=True, capture_output=True, text=True, cwd=ROOT / "format/mcap").stdout.splitlines()


def our_floor(binary, path):
    return min(float(x.split()[1]) for x in go(binary, path, ROBOCACHE_MODE="floor", ROBOCACHE_BUDGET="1") if x.startswith("floor:"))


def ours(binary, path, windows, mode, budget="0"):
    """CPU seconds, and (messages, CRC) of each window."""
    lines = "\n".join(f"{t} {a} {b}" for t, a, b in windows)
    out = [x.split() for x in go(binary, path, ROBOCACHE_WINDOWS=lines, ROBOCACHE_MODE=mode, ROBOCACHE_BUDGET=budget) if x.startswith("window:")]
    return [float(x[3]) for x in out], [tuple(map(int, x[1:3])) for x in out]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=30)
    p.add_argument("--windows", type=int, default=600)
    p.add_argument("--peer-windows", type=int, default=40)
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--compression", choices=["zstd", "lz4", "none"], default="zstd")
    a = p.parse_args()
    rng = np.random.default_rng(2)
    result = {}
    with tempfile.TemporaryDirectory() as tmp:
        path, binary = os.path.join(tmp, "run.mcap"), os.path.join(tmp, "mcap.test")
        make(path, a.seconds, a.compression)
        subprocess.run(["go", "test", "-c", "-o", binary, "./format/mcap"], check=True, cwd=ROOT)
        starts = T0 + (rng.random(a.windows) * (a.seconds - 0.5) * 1e9).astype(np.int64)
        for mode, topics, read in (("payloads", ("/joint_states", "/imu/data"), payloads), ("columns", ("/joint_states",), columns)):
            windows = [(topics[k % len(topics)], int(s), int(s) + 500_000_000) for k, s in enumerate(starts)]
            theirs = windows[: a.peer_windows]
            with open(path, "rb") as f:
                reader = make_reader(f, decoder_factories=[DecoderFactory()])
                reader.get_summary()
                want = [read(reader, *w) for w in theirs]
                chunks = touched(reader.get_summary().chunk_indexes, theirs)
                for budget in ("0", "1"):
                    _, got = ours(binary, path, windows, mode, budget)
                    assert got[: len(want)] == want, (mode, [x for x in zip(got, want) if x[0] != x[1]][:3])
                times = {k: [] for k in ("first", "cold", "run", "python", "their floor", "our floor")}
                for k in range(a.repeats):
                    t = time.process_time()
                    for w in theirs:
                        read(reader, *w)
                    times["python"].append((time.process_time() - t) / len(theirs))
                    spent, _ = ours(binary, path, windows, mode)
                    times["run"].append(sum(spent) / len(spent))
                    times["first"].append(sum(spent[:5]) / 5)
                    spent, _ = ours(binary, path, windows, mode, "1")
                    times["cold"].append(sum(spent[100:]) / len(spent[100:]))
                    times["their floor"].append(floor(path) * chunks)
                    times["our floor"].append(our_floor(binary, path) * chunks)
            best = {k: min(v) * 1e3 for k, v in times.items()}
            ratio = {k: best["python"] / best[k] for k in best if k != "python" and best[k] > 0}
            result[mode] = {"ms_per_window": best, "ratio": ratio, "messages": sum(n for n, _ in want) / len(want), "chunks": chunks}
            print(f"{mode}: a window of {result[mode]['messages']:.0f} messages in {chunks:.2f} chunks ({a.compression}), file of {os.path.getsize(path) / 1e6:.0f} MB: Python's indexed reader {best['python']:.2f} ms")
            for k, what in (("first", "the first five of a process"), ("cold", "nothing cached"), ("run", f"{len(windows)} windows with the cache"), ("their floor", "the peer's decompressor alone: at most"), ("our floor", "reading, ours, check sum: at most")):
                print(f"  {k:12} {best[k]:8.4f} ms {ratio.get(k, float('inf')):6.1f}x  {what}")
    print(json.dumps(result))


main()
