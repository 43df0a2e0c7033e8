"""The judge of format/rlds: tensorflow-datasets writes sets of every kind of feature, and reads back what any writer made.

    tfds.py write DIR        sets below DIR, and DIR/<set>.json: what tensorflow-datasets reads of each
    tfds.py read DIR OUT     OUT: the same of the set in the version folder DIR, opened without code
"""

import hashlib
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TFDS_DISABLE_PROGRESS_BAR", "1")

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

F = tfds.features


def rng(*key):
    return np.random.default_rng(sum(k * 7919**i for i, k in enumerate(key)) % 2**32)


def numbers(r, shape, dtype):
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return r.integers(0, 2, shape).astype(np.bool_)
    if dtype.kind in "iu":
        lo, hi = np.iinfo(dtype).min, np.iinfo(dtype).max
        return np.asarray(r.integers(lo, hi, shape, dtype=dtype, endpoint=True), dtype)
    return np.asarray(r.standard_normal(shape), np.float64).astype(dtype)


STEP = {
    "is_first": F.Scalar(np.bool_), "is_last": F.Scalar(np.bool_), "is_terminal": F.Scalar(np.bool_),
    "reward": F.Scalar(np.float32), "discount": F.Scalar(np.float64),
    "action": {"world_vector": F.Tensor(shape=(3,), dtype=np.float32), "terminate_episode": F.Tensor(shape=(3,), dtype=np.int32)},
    "language_instruction": F.Text(),
    "observation": {
        "state": F.Tensor(shape=(8,), dtype=np.float32), "f64": F.Tensor(shape=(2, 3), dtype=np.float64), "f16": F.Tensor(shape=(4,), dtype=np.float16),
        "i8": F.Tensor(shape=(2,), dtype=np.int8), "i16": F.Tensor(shape=(2,), dtype=np.int16), "i32": F.Scalar(np.int32), "i64": F.Scalar(np.int64),
        "u8": F.Tensor(shape=(4, 5), dtype=np.uint8), "u16": F.Scalar(np.uint16), "u32": F.Scalar(np.uint32), "u64": F.Tensor(shape=(2,), dtype=np.uint64),
        "flags": F.Tensor(shape=(3,), dtype=np.bool_), "name": F.Tensor(shape=(), dtype=np.str_), "label": F.ClassLabel(names=["left", "right", "both"]),
        "rgb": F.Image(), "fixed": F.Image(shape=(6, 8, 3), encoding_format="png"), "jpeg": F.Image(shape=(16, 24, 3), encoding_format="jpeg"),
        "grey": F.Image(shape=(5, 4, 1)), "rgba": F.Image(shape=(3, 3, 4)), "depth16": F.Image(shape=(4, 6, 1), dtype=np.uint16),
        "depth": F.Image(shape=(4, 6, 1), dtype=np.float32),
        "raw": F.Tensor(shape=(5, 6), dtype=np.float32, encoding="bytes"), "zipped": F.Tensor(shape=(4,), dtype=np.float64, encoding="zlib"),
        "zipped_u16": F.Tensor(shape=(3, 3), dtype=np.uint16, encoding="zlib"), "cloud": F.Tensor(shape=(None, 3), dtype=np.float32, encoding="zlib"),
        "bbox": F.BBoxFeature(),
        "seq": F.Sequence(F.Scalar(np.float32)), "seq3": F.Sequence(F.Tensor(shape=(3,), dtype=np.int16)),
        "objects": F.Sequence({"id": F.Scalar(np.int64), "box": F.Tensor(shape=(4,), dtype=np.float32)}),
        "tree": F.Sequence(F.Sequence(F.Scalar(np.int32))), "words": F.Sequence(F.Text()),
    },
}


# Sequences of fixed length: tensorflow-datasets writes them and then fails to read them inside steps, so the values themselves are the judge.
FIXED = {"is_first": F.Scalar(np.bool_), "four": F.Sequence(F.Tensor(shape=(2,), dtype=np.float32), length=4), "pairs": F.Sequence(F.Sequence(F.Scalar(np.float32), length=2)),
         "grid": F.Sequence(F.Sequence(F.Scalar(np.int16), length=3), length=2)}


def value(feature, r, t, n):
    if isinstance(feature, dict):
        return {k: value(f, r, t, n) for k, f in feature.items()}
    if isinstance(feature, F.FeaturesDict):
        return {k: value(f, r, t, n) for k, f in feature.items()}
    if isinstance(feature, F.ClassLabel):
        return int(r.integers(0, 3))
    if isinstance(feature, F.Text):
        return ["pick", "pick up the größte cup", ""][int(r.integers(0, 3))]
    if isinstance(feature, F.BBoxFeature):
        a = np.sort(r.random(4, dtype=np.float32))
        return F.BBox(ymin=a[0], xmin=a[1], ymax=a[2], xmax=a[3])
    if isinstance(feature, F.Image):
        shape = [7 if d is None else d for d in feature.shape]
        return numbers(r, shape, feature.np_dtype)
    if isinstance(feature, F.Sequence):
        k = feature._length if feature._length is not None else int(r.integers(0, 4))
        return [value(feature.feature, r, t, n) for _ in range(k)]
    if feature.np_dtype in (np.str_, np.object_):
        return "name %d" % t
    return numbers(r, [int(r.integers(0, 5)) if d is None else d for d in feature.shape], feature.np_dtype)


def episode(step, split, e, n):
    r = rng(e, n, len(split))
    steps = []
    for t in range(n):
        s = value(F.FeaturesDict(step), r, t, n)
        for k, v in (("is_first", t == 0), ("is_last", t == n - 1), ("is_terminal", False)):
            if k in s:
                s[k] = v
        if "language_instruction" in s:
            s["language_instruction"] = "" if t == 0 and e % 3 == 2 else "do task %d" % (e % 4)
        steps.append(s)
    return steps, r


def build(root, name, version, step, meta, lengths, shards=1, config=None):
    with tfds.core.registered.skip_registration():
        class Kinds(tfds.core.GeneratorBasedBuilder):
            VERSION = tfds.core.Version(version)
            BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=config)] if config else []

            def _info(self):
                return tfds.core.DatasetInfo(builder=self, features=F.FeaturesDict({"steps": F.Dataset(step), **meta}))

            def _split_generators(self, dl):
                return {s: self._generate_examples(s, ls) for s, ls in lengths.items()}

            def _generate_examples(self, split, ls):
                for e, n in enumerate(ls):
                    steps, r = episode(step, split, e, n)
                    yield "%s-%d" % (split, e), {"steps": steps, **{k: value(f, r, 0, n) for k, f in meta.items()}}

    Kinds.__name__ = "".join(p.capitalize() for p in name.split("_"))
    Kinds.name = name
    b = Kinds(data_dir=root, config=config, file_format="tfrecord")
    b.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=shards))
    return str(b.data_path)


def flat(prefix, x, out):
    if isinstance(x, dict):
        for k, v in x.items():
            flat(prefix + "." + k if prefix else k, v, out)
    else:
        out[prefix] = x


def sha(b):
    return hashlib.sha256(b).hexdigest()


def summary(values):
    """What a list of rows is: dtype, shape of a row, and the check sum of all of it, little-endian."""
    first = values[0]
    if isinstance(first, (tf.RaggedTensor, tf.compat.v1.ragged.RaggedTensorValue)):
        inner = [list(map(int, v.row_lengths().numpy())) for v in values]
        return {"dtype": np.dtype(first.dtype.as_numpy_dtype).name, "inner": inner, "counts": [int(v.flat_values.shape[0]) for v in values],
                "sha256": sha(b"".join(v.flat_values.numpy().tobytes() for v in values))}
    rows = [np.asarray(v) for v in (x.numpy() if hasattr(x, "numpy") else x for x in values)]
    if rows[0].dtype == object or rows[0].dtype.kind == "S":
        return {"texts": [[t.decode() for t in x.ravel().tolist()] if x.ndim else x.item().decode() for x in rows]}
    return {"dtype": rows[0].dtype.name, "counts": [int(x.shape[0]) if x.ndim else 1 for x in rows], "shape": list(rows[0].shape),
            "sha256": sha(b"".join(np.ascontiguousarray(x).tobytes() for x in rows))}


def read(path):
    b = tfds.builder_from_directory(path)
    out = {"name": b.name, "splits": {}}
    config = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    for split in b.info.splits:
        episodes = []
        for ep in b.as_dataset(split=split, read_config=config, shuffle_files=False):
            e = {"steps": 0, "features": {}}
            rows = {}
            for s in ep.pop("steps"):
                e["steps"] += 1
                one = {}
                flat("", s, one)
                for k, v in one.items():
                    rows.setdefault(k, []).append(v)
            one = {}
            flat("", ep, one)
            for k, v in one.items():
                rows[k] = [v]
            for k, v in rows.items():
                e["features"][k] = summary(v)
            episodes.append(e)
        out["splits"][split] = episodes
    return out


def dump(path, to):
    with open(to, "w") as f:
        json.dump(read(path), f)


META = {"episode_metadata": F.FeaturesDict({"file_path": F.Text(), "id": F.Scalar(np.int64), "score": F.Scalar(np.float64), "tags": F.Sequence(F.Scalar(np.int32)), "goal": F.Image(shape=(4, 4, 3))})}


def main(argv):
    if argv[0] == "read":
        dump(argv[1], argv[2])
        return
    root = argv[1]
    sets = {
        "kinds": build(root, "kinds", "1.0.0", STEP, META, {"train": [5, 1, 3, 2], "test": [4]}),
        "shards": build(root, "shards", "0.2.0", {"is_first": F.Scalar(np.bool_), "action": F.Tensor(shape=(7,), dtype=np.float32), "language_instruction": F.Text()}, {}, {"train": list(range(1, 30))}, shards=5, config="low_dim"),
        "bare": build(root, "bare", "0.0.1", {"observation": {"x": F.Tensor(shape=(2,), dtype=np.float32), "image": F.Image(shape=(4, 4, 3))}}, {}, {"train": [3, 0, 2]}),
    }
    for name, path in sets.items():
        dump(path, os.path.join(root, name + ".json"))
    build(root, "fixed", "1.0.0", FIXED, {}, {"train": [3]})
    steps, _ = episode(FIXED, "train", 0, 3)
    with open(os.path.join(root, "fixed.json"), "w") as f:
        json.dump({"pairs_counts": [len(s["pairs"]) for s in steps], **{k: sha(b"".join(np.asarray(s[k], d).tobytes() for s in steps)) for k, d in (("four", "<f4"), ("pairs", "<f4"), ("grid", "<i2"))}}, f)


if __name__ == "__main__":
    main(sys.argv[1:])
