"""robomimic HDF5: windows of 16 rows in random order, by robocache.Loader and by robomimic's SequenceDataset in a DataLoader.

    formats_hdf5.py --make DIR                                            # writes raw.hdf5, gzip.hdf5, low.hdf5 into DIR
    formats_hdf5.py --file DIR/raw.hdf5 --arm ours|theirs [--cache none|all] [--workers 2]

Both give the same windows: every row of every demo begins one, its end is padded with the last row. Of forty batches the first window
is compared with h5py. CPU seconds are those of the process and its children, between the first batch after the warm epoch (cached) or
after the first batches (else) and the last; the outcome is a line of JSON."""
import argparse, contextlib, io, json, os, sys, time

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from common import cpu_seconds, pss_mb

p = argparse.ArgumentParser()
p.add_argument("--make", default="")
p.add_argument("--file", default="")
p.add_argument("--arm", default="ours", choices=["ours", "theirs", "inflate"])
p.add_argument("--cache", default="none", choices=["none", "all"])
p.add_argument("--memory", default="", help="memory_budget of our loader")
p.add_argument("--workers", type=int, default=2)
p.add_argument("--batch-size", type=int, default=16)
p.add_argument("--window", type=int, default=16)
p.add_argument("--batches", type=int, default=60)
p.add_argument("--warm", type=int, default=10)
p.add_argument("--demos", type=int, default=20)
p.add_argument("--rows", type=int, default=100)
a = p.parse_args()

CAMERAS = ("agentview_image", "robot0_eye_in_hand_image")
LOW = {"robot0_eef_pos": 3, "robot0_eef_quat": 4, "robot0_gripper_qpos": 2, "object": 10}


def pic(rng, n):
    """n frames of 84 x 84: a gradient, a few moving boxes, a little noise: they deflate to about two thirds."""
    y, x = np.mgrid[0:84, 0:84]
    base = np.stack([x * 2, y * 2, x + y], -1).astype(np.int16)
    out = np.empty((n, 84, 84, 3), np.uint8)
    for k in range(n):
        f = base + rng.integers(-2, 3, base.shape)
        for b in range(4):
            at = (10 + 15 * b + k) % 70, (7 * b + 2 * k) % 70
            f[at[0] : at[0] + 12, at[1] : at[1] + 12] = 40 * b
        out[k] = np.clip(f, 0, 255)
    return out


def make(folder):
    import h5py

    os.makedirs(folder, exist_ok=True)
    for name, kw in (("raw", {}), ("gzip", dict(chunks=(1, 84, 84, 3), compression="gzip", compression_opts=4)), ("low", None)):
        rng = np.random.default_rng(0)
        with h5py.File(f"{folder}/{name}.hdf5", "w") as f:
            d = f.create_group("data")
            d.attrs["total"] = a.demos * a.rows
            d.attrs["env_args"] = json.dumps({"env_name": "Lift", "type": 1, "env_kwargs": {"control_freq": 20}})
            for i in range(a.demos):
                g = d.create_group(f"demo_{i}")
                g.attrs["num_samples"] = a.rows
                g["actions"] = rng.standard_normal((a.rows, 7)).astype(np.float32)
                for k, n in LOW.items():
                    g[f"obs/{k}"] = rng.standard_normal((a.rows, n))
                if kw is not None:
                    for c in CAMERAS:
                        g.create_dataset(f"obs/{c}", data=pic(rng, a.rows), **kw)


def ours(cameras):
    """Batches as (sample numbers, which the format does not have, {name: array}), frames as they come: channels first."""
    import robocache

    obs = [*LOW, *cameras]
    ds = robocache.open(a.file)
    offsets = [k / 20 for k in range(a.window)]
    keys = ["action", *(f"observation.{k}" for k in obs)]
    kw = {}
    if a.cache == "all":
        kw["cache"] = "ram"
    if a.memory:
        kw["memory_budget"] = a.memory
    loader = robocache.Loader(ds, batch_size=a.batch_size, shuffle="global", threads=a.workers, keys=keys, delta_timestamps={k: offsets for k in keys}, **kw)

    def epoch():
        for b in loader:
            yield None, {"actions": b["action"], **{k: b[f"observation.{k}"] for k in obs}}

    return epoch


def theirs(cameras):
    import torch

    torch.set_num_threads(1)
    import robomimic.utils.obs_utils as obs_utils
    from robomimic.utils.dataset import SequenceDataset

    obs = [*LOW, *cameras]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        obs_utils.initialize_obs_utils_with_obs_specs([{"obs": {"low_dim": list(LOW), "rgb": list(cameras), "depth": [], "scan": []}}])
        ds = SequenceDataset(a.file, obs_keys=tuple(obs), dataset_keys=("actions",), seq_length=a.window, pad_seq_length=True, load_next_obs=False, hdf5_cache_mode="all" if a.cache == "all" else None)

    class Recorded(torch.utils.data.Sampler):
        def __len__(self):
            return len(ds)

        def __iter__(self):
            self.order = torch.randperm(len(ds))
            return iter(self.order.tolist())

    sampler = Recorded()
    kw = dict(persistent_workers=True, worker_init_fn=lambda _: torch.set_num_threads(1)) if a.workers else {}
    loader = torch.utils.data.DataLoader(ds, sampler=sampler, batch_size=a.batch_size, num_workers=a.workers, **kw)

    def epoch():
        it, at = iter(loader), 0
        for b in it:
            n = len(b["actions"])
            yield sampler.order[at : at + n], {"actions": b["actions"], **b["obs"]}
            at += n

    return epoch


def checker(cameras):
    import h5py

    f = h5py.File(a.file, "r", swmr=True, libver="latest")  # as robomimic opens it: one process cannot have both ways
    demos = sorted(f["data"], key=lambda n: int(n[5:]))
    actions = [f[f"data/{n}/actions"][()] for n in demos]
    ends = np.cumsum([len(x) for x in actions])
    find = {row.tobytes(): i for i, row in enumerate(np.concatenate(actions))}  # random numbers: each row is there once

    def check(index, batch):
        i = int(index[0]) if index is not None else find[np.asarray(batch["actions"][0][0]).tobytes()]
        d = int(np.searchsorted(ends, i, "right"))
        begin = 0 if d == 0 else int(ends[d - 1])
        rows = np.minimum(np.arange(i - begin, i - begin + a.window), int(ends[d]) - begin - 1)
        for k, v in batch.items():
            want = f[f"data/{demos[d]}/" + (k if k == "actions" else f"obs/{k}")][()][rows]
            got = np.asarray(v[0])
            if k in cameras and got.shape != want.shape:
                got = got.transpose(0, 2, 3, 1)
            if not np.array_equal(got, want):
                raise SystemExit(f"{k} of window {i} is wrong")

    return check


def main():
    cameras = () if os.path.basename(a.file).startswith("low") else CAMERAS
    epoch = (ours if a.arm == "ours" else theirs)(cameras)
    check = None
    if a.cache == "all" or not cameras:
        for _ in epoch():  # fills the caches; theirs has filled its own
            pass
    every = max(1, a.batches // 40)  # not more: h5py turns the processor's caches over
    warm, left, samples, checked, start = a.warm, a.batches, 0, 0, None
    spent = 0.0
    while left:
        for index, batch in epoch():
            if warm:
                warm -= 1
                if not warm:
                    start = time.perf_counter(), cpu_seconds()
                continue
            if left % every == 0:
                t, c = time.perf_counter(), time.process_time()
                check = check or checker(cameras)
                check(index, batch)
                spent, checked = spent + time.process_time() - c, checked + 1
                start = start[0] + time.perf_counter() - t, start[1]
            samples += len(batch["actions"])
            left -= 1
            if not left:
                break
    wall, cpu = time.perf_counter() - start[0], cpu_seconds() - start[1] - spent
    print(json.dumps(dict(arm=a.arm, file=os.path.basename(a.file), cache=a.cache, memory=a.memory, workers=a.workers, samples=samples, checked=checked, samples_per_s=round(samples / wall, 1), cpu_s_per_1000=round(1000 * cpu / samples, 4), pss_mb=round(pss_mb()))))
    sys.stdout.flush()
    os._exit(0)


if a.make:
    make(a.make)
else:
    main()
