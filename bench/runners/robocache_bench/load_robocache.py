"""Measures robocache.Loader with torch tensors.

Job options: disk is a folder for a disk cache; the cache is new, and removed at the end, so that
the first epoch is cold. truth is an HDF5 file whose windows are compared; then every stream has
windows.
"""

import contextlib, tempfile, time

from . import common

import torch

import robocache


def triple(batches):
    for b in batches:
        yield b["index"].numpy(), b["episode_index"].numpy(), b


def paced(batches):
    """Yields batches on a device and keeps the host at most one batch ahead, like a training loop.

    The host sleeps until the previous batch is complete; it does not spin.
    """
    before = None
    for b in batches:
        there = torch.cuda.Event(blocking=True)
        there.record()
        if before:
            before.synchronize()
        before = there
        yield b["index"], b["episode_index"], b


def measure(a, disk):
    common.imported()
    t = time.perf_counter()
    hz = dict(rows_hz=float(a.rows_hz)) if a.rows_hz else {}
    ds = robocache.open(a.uri, **hz)
    opened = time.perf_counter() - t
    names = list(ds.features)
    cameras = [k for k in names if ds.features[k].kind == "video"]
    wanted = [] if a.video == "none" else cameras[: 1 if a.video == "one" else None]
    windowed = (
        [k for k in names if not ds.features[k].default]
        if a.truth
        else [k for k in ("observation.state", "action") if k in names] + wanted
    )
    options = dict(
        batch_size=a.batch_size,
        shuffle={"file": False}.get(a.shuffle, a.shuffle or "global"),
        seed=a.seed,
        keys=[k for k in dict.fromkeys([*names, "index", "episode_index"]) if k not in cameras]
        + wanted,
        delta_timestamps=common.window_offsets(a, float(ds.fps), windowed),
        image_size=common.image_hw(a),
        episodes=common.positions(a.episodes),
        split="all",
        drop_last=bool(a.drop_last),
        rank=a.rank or 0,
        world_size=a.world or 1,
        **hz,
    )
    if a.duration_s:
        options["on_bad_episode"] = "skip"  # skipped episodes are counted in skipped_episodes
    options.update(
        {
            k: a[k]
            for k in (
                "prefetch",
                "cache",
                "cache_budget",
                "cache_format",
                "memory_budget",
                "pool_size",
                "pool_episodes",
                "decode",
                "device_memory_budget",
            )
            if a.get(k)
        }
    )
    options.update(dict(cache=disk) if disk else {})
    each, more = triple, {}
    if (a.device or "cpu") != "cpu":
        options["device"], each, more = a.device, paced, dict(synchronise=torch.cuda.synchronize)
    t = time.perf_counter()
    loader = robocache.Loader(a.uri, threads=a.workers, **common.loader_keywords(options))
    built = time.perf_counter() - t
    uncached = {k: v for k, v in options.items() if not k.startswith("cache")}
    alone = lambda: each(
        robocache.Loader(a.uri, threads=1, **common.loader_keywords({**uncached, "prefetch": 1}))
    )
    facts = dict(
        open_s=opened,
        index_build_s=built,
        num_cameras=len(wanted),
        image_shape=list(ds.features[wanted[0]].shape) if wanted else [],
        fps=float(ds.fps),
        loaded_episodes=len(options["episodes"] or range(ds.num_episodes)),
    )

    def batches():
        # In a window of whole epochs, no epoch begins before the previous one has ended.
        if loader.epoch and not a.duration_s:
            loader.set_epoch(loader.epoch + 1)
            loader.set_epoch(loader.epoch - 1)
        return loader

    epoch, extra = lambda: each(batches()), dict
    if a.truth:
        from .hdf5_set import Truth

        truth = Truth(a.truth, max(a.window, 1))
        epoch, extra = truth.checked(epoch), truth.found
    common.measure(
        epoch,
        a,
        facts,
        images=lambda b, key: b[key],
        cameras=wanted,
        single=alone,
        stats=loader.stats,
        extra=extra,
        **more,
    )


def main(a):
    with (
        tempfile.TemporaryDirectory(prefix="disk-cache-", dir=a.disk)
        if a.disk
        else contextlib.nullcontext("") as disk
    ):
        measure(a, disk)


common.run(main)
