"""Compares RoboCache with the usual reader package of each format.

bench/cases.yaml has the cases.

The job has uri, case and runner. The runner make writes the data of a case to the folder uri. All
other runners read it in whole passes. The first pass is not measured; its values are hashed. A
sample is a frame, row, message or step.
"""

import glob, hashlib, json, os, shutil, warnings

from . import common
import numpy as np

warnings.simplefilter("ignore")
a = common.job()
RUNNERS, MAKERS = {}, {}


def runner(case, *names):
    """Registers a function that opens the data and returns a pass.

    A pass is a function that returns the number of samples and the values. The values of the first
    pass are hashed; () means that none are compared.
    """
    return lambda f: RUNNERS.update({(case, n): f for n in names})


def maker(case):
    return lambda f: MAKERS.setdefault(case, f)


# CALVIN: every array of a frame.

SHAPES = {
    "actions": ((7,), "f8"),
    "rel_actions": ((7,), "f8"),
    "robot_obs": ((15,), "f8"),
    "scene_obs": ((24,), "f8"),
    "rgb_static": ((200, 200, 3), "u1"),
    "rgb_gripper": ((84, 84, 3), "u1"),
    "depth_static": ((200, 200), "f4"),
    "depth_gripper": ((84, 84), "f4"),
    "rgb_tactile": ((160, 120, 6), "u1"),
    "depth_tactile": ((160, 120, 2), "f4"),
}


@maker("calvin")
def make_calvin():
    os.makedirs(f"{a.uri}/training", exist_ok=True)
    rng = np.random.default_rng(0)
    for i in range(60):
        np.savez(
            f"{a.uri}/training/episode_{i:07d}.npz",
            **{
                k: rng.integers(0, 256, s).astype(t)
                if t == "u1"
                else rng.standard_normal(s).astype(t)
                for k, (s, t) in SHAPES.items()
            },
        )
    np.save(f"{a.uri}/training/ep_start_end_ids.npy", np.array([[0, 29], [30, 59]]))


@runner("calvin", "numpy")
def calvin():
    files = sorted(glob.glob(f"{a.uri}/training/episode_*.npz"))

    def once():
        for name in files:
            with np.load(name, allow_pickle=False) as z:
                for k in z.files:
                    z[k]
        return len(files), ()

    return once


# Zarr, chunk by chunk. zarr-python is called as in a training script. numcodecs alone is the lower
# bound for any reader in Python. The case is named zarr-CODEC-SHUFFLE-ARRAY.


@maker("zarr")
def make_zarr():
    """Writes stores of realistic sizes: frames in chunks of 32, states in chunks of 4096 rows."""
    import zarr
    from numcodecs import Blosc

    src = zarr.open_group(
        os.path.join(os.environ["ROBOCACHE_TESTDATA"], "diffusion_policy_zarr/replay_buffer.zarr"),
        mode="r",
    )
    img, state = (
        np.concatenate([np.asarray(src["data/img"])] * 6),
        np.concatenate([np.asarray(src["data/state"]) + i for i in range(400)]),
    )
    for codec in ("lz4", "zstd"):
        for shuffle, word in (
            (Blosc.NOSHUFFLE, "none"),
            (Blosc.SHUFFLE, "byte"),
            (Blosc.BITSHUFFLE, "bit"),
        ):
            for key, x, chunks in (
                ("img", img, (32, 96, 96, 3)),
                ("state", state, (4096, 26)),
                ("state32", state.astype(np.float32), (4096, 26)),
            ):
                g = zarr.open_group(f"{a.uri}/{codec}-{word}-{key}.zarr", mode="w", zarr_format=2)
                z = g.create_array(
                    f"data/{key}",
                    shape=x.shape,
                    dtype=x.dtype,
                    chunks=chunks,
                    compressors=Blosc(cname=codec, clevel=5, shuffle=shuffle),
                )
                z[:] = x
                g.create_array("meta/episode_ends", data=np.array([len(x)]))


@runner("zarr", "zarr-python", "numcodecs")
def chunks():
    import zarr
    from numcodecs import blosc, get_codec

    blosc.set_nthreads(1)
    zarr.config.set({"async.concurrency": 1, "threading.max_workers": 1})
    folder = glob.glob(f"{a.uri}/data/*/.zarray")[0][: -len("/.zarray")]
    z = zarr.open_array(folder, mode="r")
    step, count = z.chunks[0], z.shape[0] // z.chunks[0]
    with open(f"{folder}/.zarray") as f:
        codec = get_codec(json.load(f)["compressor"])
    suffix = ".0" * (z.ndim - 1)

    def alone(i):
        with open(f"{folder}/{i}{suffix}", "rb") as f:
            return codec.decode(f.read())

    read = alone if a.runner == "numcodecs" else lambda i: np.asarray(z[i * step : (i + 1) * step])

    def once():
        for i in range(count):
            read(i)
        return count * step, (read(i) for i in range(count))

    return once


# ROS 2: whole recordings, converted to columns.

JOINT, IMU = "sensor_msgs/msg/JointState", "sensor_msgs/msg/Imu"
BEGIN = 1_770_000_000_000_000_000
FIELDS = {
    "/joint_states": ("position", "velocity", "effort"),
    "/imu/data": (
        "orientation",
        "orientation_covariance",
        "angular_velocity",
        "angular_velocity_covariance",
        "linear_acceleration",
        "linear_acceleration_covariance",
    ),
}


def ros2_typestore():
    from rosbags.typesys import Stores, get_typestore

    return get_typestore(Stores.ROS2_HUMBLE)


def make_message(ts, kind, at, rng):
    head = ts.types["std_msgs/msg/Header"](
        ts.types["builtin_interfaces/msg/Time"](at // 10**9, at % 10**9), "base"
    )
    if kind == JOINT:
        return ts.types[JOINT](
            head,
            [f"joint_{k}" for k in range(26)],
            rng.normal(size=26),
            rng.normal(size=26),
            rng.normal(size=26),
        )
    xyz = lambda: ts.types["geometry_msgs/msg/Vector3"](*map(float, rng.normal(size=3)))
    return ts.types[IMU](
        head,
        ts.types["geometry_msgs/msg/Quaternion"](*map(float, rng.normal(size=4))),
        rng.normal(size=9),
        xyz(),
        rng.normal(size=9),
        xyz(),
        rng.normal(size=9),
    )


def values_of(kind, m):
    if kind == JOINT:
        return m.position, m.velocity, m.effort
    q, w, x = m.orientation, m.angular_velocity, m.linear_acceleration
    return (
        (q.x, q.y, q.z, q.w),
        m.orientation_covariance,
        (w.x, w.y, w.z),
        m.angular_velocity_covariance,
        (x.x, x.y, x.z),
        m.linear_acceleration_covariance,
    )


def columns(messages):
    """Converts (topic or kind, message) pairs to timestamps and one array per field, by topic."""
    out = {}
    for topic, m in messages:
        kind = {"/joint_states": JOINT, "/imu/data": IMU}.get(topic, topic)
        row = (m.header.stamp.sec * 10**9 + m.header.stamp.nanosec, *values_of(kind, m))
        cols = out.setdefault(topic, [[] for _ in row])
        for c, v in zip(cols, row):
            c.append(v)
    return {
        t: [np.array(c[0])] + [np.array(x, dtype=np.float64) for x in c[1:]] for t, c in out.items()
    }


@maker("recordings")
def make_recordings():
    from rosbags.rosbag2 import StoragePlugin, Writer
    from rosbags.rosbag2.enums import CompressionFormat, CompressionMode

    ts, rng = ros2_typestore(), np.random.default_rng(0)
    bag = Writer(a.uri, version=9, storage_plugin=StoragePlugin.MCAP)
    bag.set_compression(CompressionMode.STORAGE, CompressionFormat.ZSTD)
    with bag as w:
        conns = {
            t: w.add_connection(t, kind, typestore=ts)
            for t, kind in (("/joint_states", JOINT), ("/imu/data", IMU))
        }
        for at, topic in sorted(
            (BEGIN + int(k * 1e9 / hz), topic)
            for topic, hz in (("/joint_states", 100), ("/imu/data", 333))
            for k in range(60 * hz)
        ):
            kind = conns[topic].msgtype
            w.write(conns[topic], at, ts.serialize_cdr(make_message(ts, kind, at, rng), kind))


@runner("recordings", "rosbags", "mcap-ros2-support", "robocache")
def recordings():
    from pathlib import Path

    file = glob.glob(f"{a.uri}/*.mcap")[0]

    def ours():
        import robocache

        with robocache.open(file) as ds:
            s = ds.episode(0).streams
            return {
                t: [s[f"{t[1:].replace('/', '.')}.{f[0]}"].times]
                + [s[f"{t[1:].replace('/', '.')}.{k}"].values for k in f]
                for t, f in FIELDS.items()
            }

    def rosbags():
        from rosbags.highlevel import AnyReader

        with AnyReader([Path(a.uri)]) as r:
            return columns(
                (c.topic, r.deserialize(raw, c.msgtype))
                for c, _, raw in r.messages([c for c in r.connections if c.topic in FIELDS])
            )

    def support():
        from mcap_ros2.reader import read_ros2_messages

        return columns(
            (m.channel.topic, m.ros_msg) for m in read_ros2_messages(file, topics=list(FIELDS))
        )

    read = {"rosbags": rosbags, "mcap-ros2-support": support, "robocache": ours}[a.runner]

    def once():
        got = read()
        return 60 * 433, (
            np.asarray(x).astype(np.float64 if np.asarray(x).dtype.kind == "f" else np.int64)
            for t in FIELDS
            for x in got[t]
        )

    return once


# RLDS: whole steps in order, in batches of 64, with every feature and decoded frames.

CAMERAS = [f"observation.image_{i}" for i in range(4)]
NUMBERS = [
    "action",
    "observation.state",
    "language_embedding",
    "reward",
    "discount",
    "is_first",
    "is_last",
    "is_terminal",
]


@maker("rlds")
def make_rlds(copies=20):
    """Writes a set of several shards; each is a copy of the first shard of split train."""
    path = os.path.join(os.environ["ROBOCACHE_TESTDATA"], "bridge_rlds/bridge_dataset/1.0.0")
    with open(os.path.join(path, "dataset_info.json")) as f:
        info = json.load(f)
    split = next(s for s in info["splits"] if s["name"] == "train")
    os.makedirs(a.uri)
    shutil.copy(os.path.join(path, "features.json"), a.uri)
    for i in range(copies):
        shutil.copy(
            os.path.join(
                path, f"{info['name']}-train.tfrecord-00000-of-{len(split['shardLengths']):05d}"
            ),
            os.path.join(a.uri, f"{info['name']}-train.tfrecord-{i:05d}-of-{copies:05d}"),
        )
    split = dict(
        split,
        shardLengths=split["shardLengths"][:1] * copies,
        numBytes=str(int(split["numBytes"]) * copies),
    )
    with open(os.path.join(a.uri, "dataset_info.json"), "w") as f:
        json.dump(dict(info, splits=[split]), f)


def values_of_steps(batches):
    """Yields the numbers and the instructions of all steps."""
    for b in batches():
        for k in NUMBERS:
            v = b[k].numpy() if hasattr(b[k], "numpy") else np.asarray(b[k])
            yield v.reshape(len(v), -1).astype("<f4")
        for text in b["language_instruction"]:
            yield np.frombuffer(text if isinstance(text, bytes) else text.encode(), np.uint8)


@runner("rlds", "tfds", "robocache")
def rlds():
    if a.runner == "robocache":
        import robocache

        loader = robocache.Loader(
            a.uri,
            batch_size=64,
            shuffle=False,
            threads=2,
            open=robocache.Open(options={"split": "train"}),
            keys=CAMERAS + NUMBERS + ["language_instruction"],
        )
        return lambda: (
            sum(len(b["language_instruction"]) for b in loader),
            values_of_steps(lambda: loader),
        )
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    import tensorflow as tf
    import tensorflow_datasets as tfds

    ds = tfds.builder_from_directory(a.uri).as_dataset(
        split="train",
        shuffle_files=False,
        read_config=tfds.ReadConfig(
            interleave_cycle_length=1, try_autocache=False, add_tfds_id=False
        ),
    )
    options = tf.data.Options()
    options.threading.private_threadpool_size, options.deterministic = 2, True
    ds = ds.flat_map(lambda e: e["steps"]).batch(64).prefetch(2).with_options(options)
    flat = lambda: (
        {**{"observation." + k: v for k, v in s.pop("observation").items()}, **s}
        for s in ds.as_numpy_iterator()
    )
    return lambda: (
        sum(len(s["language_instruction"]) for s in ds.as_numpy_iterator()),
        values_of_steps(flat),
    )


def main(_):
    case = a.case.split("-")[0]
    if a.runner == "make":
        return MAKERS[case]()
    once = RUNNERS[case, a.runner]()
    common.imported()
    h, seen = hashlib.sha256(), 0
    for x in once()[1]:
        h.update(np.ascontiguousarray(x).tobytes())
        seen += 1
    common.passes(lambda: once()[0], a.seconds or 0, values_sha256=h.hexdigest() if seen else "")


if a.runner == "make":
    main(a)
else:
    common.run(main)
