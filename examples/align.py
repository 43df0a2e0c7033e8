"""Align the streams of an episode on a 50 Hz timeline, with different modes and edges.

    python examples/align.py PATH

The masks show which rows were recorded or interpolated.
"""

import argparse

import numpy as np

import robocache


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("path")
    a = p.parse_args()

    ds = robocache.open(a.path)
    episode = ds[0]
    state = episode.streams["observation.state"]
    print(
        f"{state}: {len(state)} rows at {state.rate_hz:.3f} Hz, "
        f"{state.times[0]} to {state.times[-1]} ns"
    )

    # Floats are interpolated, and all other values hold the previous row. modes= changes this by
    # key.
    out = episode.align(hz=50, modes={"action": "previous"}, keys=["observation.state", "action"])
    for key, value in out.items():
        print(f"  {key:28} {value.dtype} {value.shape}")
    assert np.array_equal(np.diff(out["times"]), np.full(len(out["times"]) - 1, 20_000_000))

    # Linear interpolation by hand, for one target between two samples.
    t, rows = state.times, state.values.astype(np.float64)
    k = int(np.searchsorted(t, out["times"][1], side="right")) - 1
    w = (out["times"][1] - t[k]) / (t[k + 1] - t[k])
    assert np.allclose(
        out["observation.state"][1], rows[k] + w * (rows[k + 1] - rows[k]), atol=1e-5
    )

    # Half a second before and after the recording: edge= selects the value, and the mask is the
    # same for all edges.
    times = np.arange(t[0] - 500_000_000, t[-1] + 500_000_001, 20_000_000)
    for edge in ("clamp", "mask", "extrapolate"):
        got = episode.align(times=times, edge=edge, keys=["observation.state"])
        pad = got["observation.state_is_pad"]
        print(
            f"  {edge:12} first value {got['observation.state'][0, 0]:9.4f}, "
            f"{pad.sum()} of {len(pad)} rows are padding"
        )
        assert np.array_equal(pad, (times < t[0]) | (times > t[-1]))

    # Gaps longer than 20 ms are not interpolated. At 30 rows per second, only rows at exactly the
    # recorded times are valid.
    held = episode.align(hz=50, max_gap=0.020, keys=["observation.state"])[
        "observation.state_is_pad"
    ]
    print(f"  max_gap=20 ms: {held.sum()} of {len(held)} rows lie in a gap")

    # The same in batches: one sample per position of the timeline, with the nearest image.
    with robocache.Loader(
        ds, batch_size=16, hz=50, align=robocache.Align(modes={"action": "previous"})
    ) as loader:
        batch = next(iter(loader))
        print(
            f"  a batch of {loader.num_samples} positions:",
            {k: tuple(v.shape) for k, v in batch.items() if not isinstance(v, list)},
        )


if __name__ == "__main__":
    main()
