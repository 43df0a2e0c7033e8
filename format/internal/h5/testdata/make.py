"""Writes HDF5 files with h5py in all libver settings, and what h5py reads from them.

Usage: make.py OUT_DIR [all]
"""

import hashlib, json, sys
import h5py, numpy as np

OUT = sys.argv[1]
rng = np.random.default_rng(7)


def sha(b):
    return hashlib.sha256(b).hexdigest()


def plain(v):
    v = np.asarray(v)
    return np.ascontiguousarray(v.astype(v.dtype.newbyteorder("<"))).tobytes()


def oracle(f):
    out = {}

    def visit(name, ob):
        e = {"attrs": {}}
        for k, v in ob.attrs.items():
            if isinstance(v, np.ndarray):
                v = [
                    x.decode() if isinstance(x, bytes) else x.item() if hasattr(x, "item") else x
                    for x in v.reshape(-1)
                ]
            e["attrs"][k] = (
                v.decode() if isinstance(v, bytes) else v.item() if hasattr(v, "item") else v
            )
        if isinstance(ob, h5py.Datatype):
            return
        if isinstance(ob, h5py.Group):
            e["group"] = list(ob.keys())
        else:
            v = ob[()]
            e["shape"] = list(v.shape) if hasattr(v, "shape") else []
            if ob.dtype.kind == "O":
                h = hashlib.sha256()
                for x in np.asarray(v, object).reshape(-1):
                    h.update(len(x).to_bytes(4, "little") + x)
                e["sha256_u32len"] = h.hexdigest()
            else:
                e["sha256"] = sha(plain(v))
        out[name] = e

    visit("/", f["/"])
    f.visititems(visit)
    return out


def fill(f, big):
    # Thousands of members, many chunks of each index, extents that grew and shrank, missing chunks.
    g = f.create_group("wide")
    for k in range(3000 if big else 300):
        g[f"m{k}"] = np.int32(k)
    deep = f
    for k in range(20):
        deep = deep.create_group(f"d{k}")
    deep["x"] = [1, 2, 3]
    c = f.create_group("chunks")
    n = 9011 if big else 1300
    a = rng.integers(0, 50, n).astype("i2")
    c.create_dataset("fixed", data=a, chunks=(3,))  # paged: more than 1,024
    c.create_dataset("fixed_gzip", data=a, chunks=(7,), compression="gzip")
    c.create_dataset("growing", data=a, chunks=(1,), maxshape=(None,))
    c.create_dataset(
        "growing_gzip",
        data=a[: n // 4],
        chunks=(2,),
        maxshape=(None,),
        compression="gzip",
        shuffle=True,
    )
    two = rng.integers(0, 9, (211, 97)).astype("u1")
    c.create_dataset("tree2", data=two, chunks=(4, 5), maxshape=(None, None))
    c.create_dataset(
        "tree2_gzip", data=two, chunks=(4, 5), maxshape=(None, None), compression="gzip"
    )
    c.create_dataset(
        "second_grows", data=two, chunks=(10, 9), maxshape=(300, None), compression="lzf"
    )
    c.create_dataset("may_grow", data=two, chunks=(10, 9), maxshape=(300, 400), fletcher32=True)
    d = c.create_dataset("shrunk", data=two, chunks=(8, 8), maxshape=(None, None))
    d.resize((100, 50))
    d = c.create_dataset("grown", data=two, chunks=(8, 8), maxshape=(None, 97), fillvalue=7)
    d.resize((400, 97))
    d = c.create_dataset(
        "sparse", shape=(3000000,), chunks=(16,), maxshape=(None,), dtype="u1", fillvalue=3
    )
    for at in (5, 40000, 1234567, 2999999):
        d[at] = at % 251
    d = c.create_dataset(
        "sparse_fixed", shape=(100000,), chunks=(16,), dtype="f4", compression="gzip"
    )
    d[77777] = 1.5
    c.create_dataset(
        "odd_chunks",
        data=rng.standard_normal((37, 11, 5)),
        chunks=(5, 4, 2),
        compression="gzip",
        shuffle=True,
    )
    c.create_dataset(
        "over",
        data=rng.standard_normal((5, 3)).astype(">f4"),
        chunks=(64, 3),
        maxshape=(None, 3),
        compression="gzip",
    )
    c.create_dataset(
        "big_endian",
        data=rng.integers(-9, 9, (50, 4)).astype(">i8"),
        chunks=(7, 4),
        compression="gzip",
        shuffle=True,
    )
    c.create_dataset(
        "f2_shuffle",
        data=rng.standard_normal((50, 3)).astype("f2"),
        chunks=(7, 3),
        compression="lzf",
        shuffle=True,
    )
    # Early allocation without filters and limits: the implicit index.
    p = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    p.set_chunk((4, 6))
    p.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    ds = h5py.h5d.create(
        c.id, b"implicit", h5py.h5t.NATIVE_INT32, h5py.h5s.create_simple((30, 20)), p
    )
    ds.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(600, dtype="i4").reshape(30, 20))
    # A filter that is skipped for some chunks.
    d = c.create_dataset(
        "masked", shape=(8, 100), dtype="u1", chunks=(1, 100), compression="gzip", shuffle=True
    )
    d[:] = np.arange(800).reshape(8, 100) % 7
    d.id.write_direct_chunk((3, 0), bytes(range(100)), filter_mask=3)
    # Text and attributes.
    t = f.create_group("text")
    t.create_dataset(
        "vlen", data=[f"line {k} " + "ü" * (k % 50) for k in range(500)], dtype=h5py.string_dtype()
    )
    t.create_dataset(
        "vlen_chunks",
        data=[b"x" * (k % 300) for k in range(500)],
        chunks=(32,),
        compression="gzip",
        dtype=h5py.string_dtype("ascii"),
    )
    t.create_dataset("long", data=["a" * 100000, "b"], dtype=h5py.string_dtype())
    at = f.create_group("attrs")
    for k in range(200 if big else 20):
        at.attrs[f"n{k}"] = k * 1.5
    if f.libver[1] != "earliest" and f.libver[0] != "earliest":
        at.attrs["large"] = np.arange(30000, dtype="f8")  # over 64 KB: only in dense storage
    at.attrs["xml"] = "<m>" + "q" * 50000 + "</m>"
    at.attrs["bool"] = True
    f["named"] = np.dtype("f8")
    f.create_dataset("of_named", data=[1.5, 2.5], dtype=f["named"])
    f["scalar"] = 5
    f["empty"] = np.zeros((0, 3), "f4")


for lo, hi in (
    ("earliest", "earliest"),
    ("earliest", "v108"),
    ("earliest", "latest"),
    ("v108", "v108"),
    ("v110", "v110"),
    ("v112", "v112"),
    ("v114", "v114"),
    ("latest", "latest"),
):
    for big in (False, True):
        if (
            big
            and len(sys.argv) < 3
            and lo != "latest"
            or big
            and (lo, hi) not in (("earliest", "earliest"), ("latest", "latest"))
        ):
            continue
        path = f"{OUT}/{lo}-{hi}-{'big' if big else 'small'}.hdf5"
        try:
            f = h5py.File(path, "w", libver=(lo, hi), userblock_size=1024 if lo == "v112" else 0)
        except ValueError:
            continue
        fill(f, big)
        f.close()
        with h5py.File(path, "r") as f:
            with open(path[:-5] + ".json", "w") as o:
                json.dump({"objects": oracle(f)}, o)
