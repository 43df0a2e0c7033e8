"""Prints as JSON what h5py reads from a file. write_test.go compares it with the written data."""

import hashlib
import json
import sys

import h5py
import numpy as np


def value(v):
    if isinstance(v, (bytes, np.bytes_)):
        return v.decode()
    if isinstance(v, np.ndarray):
        return [value(x) for x in v.tolist()]
    if isinstance(v, np.generic):
        return v.item()
    return v


out = {}
with h5py.File(sys.argv[1], "r", swmr=True, libver="latest") as f:
    out["/"] = {"attrs": {k: value(v) for k, v in f.attrs.items()}}

    def visit(name, o):
        d = {"attrs": {k: value(v) for k, v in o.attrs.items()}}
        if isinstance(o, h5py.Dataset):
            a = o[()]
            text = o.dtype.kind in "OS"
            d |= {
                "shape": list(o.shape),
                "dtype": str(o.dtype),
                "chunks": o.chunks and list(o.chunks),
                "gzip": o.compression_opts,
                "shuffle": o.shuffle,
            }
            d["text"] = [value(x) for x in np.ravel(a)] if text else None
            d["sha256"] = (
                None if text else hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()
            )
        out[name] = d

    f.visititems(visit)
json.dump(out, sys.stdout)
