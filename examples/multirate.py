"""Read samples from a recording whose streams have different clocks.

    python examples/multirate.py recording.mcap [--anchor KEY] [--hz 50]

The samples are at the rows of a camera, on a uniform grid, and with windows at a stream's native
rate.
"""

import argparse

import numpy as np

import robocache


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("path")
    p.add_argument("--anchor")
    p.add_argument("--hz", type=float, default=50)
    a = p.parse_args()

    ds = robocache.open(a.path)
    streams = ds[0].streams
    print(f"{ds}; its own rows are those of {ds.info.get('clock') or 'one clock'}")
    for s in streams.values():
        print(f"  {s.key:44} {len(s):6} rows at {s.rate_hz:8.2f} Hz")

    numeric = [
        k
        for k, f in ds.features.items()
        if f.kind == "numeric" and f.dtype.startswith("float") and not f.ragged and not f.default
    ][:4]
    fast = max(numeric, key=lambda k: len(streams[k]))

    # Every sample is a row of the anchor. The fastest stream has all its rows of the last 100 ms.
    with robocache.Loader(
        ds,
        batch_size=16,
        keys=numeric,
        windows=robocache.Windows(anchor=a.anchor, seconds={fast: (-0.1, 0.0)}),
    ) as loader:
        batch = next(iter(loader))
        parts = np.split(np.asarray(batch[fast]), np.cumsum(batch[fast + "_lengths"])[:-1])
        print(f"{fast}: {[len(x) for x in parts]} samples in 100 ms")

    # The same streams on one grid, one second at a time. The masks mark values that were not
    # recorded.
    step = 1 / a.hz
    window = {k: [i * step for i in range(1 - round(a.hz), 1)] for k in numeric}
    with robocache.Loader(
        ds,
        batch_size=16,
        keys=numeric,
        hz=a.hz,
        align=robocache.Align(max_gap=0.1),
        delta_timestamps=window,
    ) as loader:
        for k, v in next(iter(loader)).items():
            if not isinstance(v, list):
                print(f"  {k:44} {tuple(v.shape)}")


if __name__ == "__main__":
    main()
