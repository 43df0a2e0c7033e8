"""The samples of a training run:

their rows, their order, and the batches of each runner.

A plan is made once by the loader, without decoding. It contains the order of the epochs, the
position of each sample, and the range of the numbers. All runners follow it, except DALI, which
shuffles by itself.

A batch is a dict: `index` [B] int64, `state` [B,To,S] and `action` [B,Ta,A] float32,
`action_is_pad` [B,Ta], and `frames` {camera: [B,To,3,H,W] uint8}.
"""

import itertools, json, math, os

from . import common

import numpy as np
import torch

OBSERVED, AHEAD = {"diffusion": 2, "diffusion-lowdim": 2}, {"resnet18": 8, "act": 100}
# rows at the end of an episode that start no sample: 8 of the 16 actions are executed
DROPPED = {"diffusion": 7, "diffusion-lowdim": 7}
MOST_EPOCHS = 4096
GRID_HZ = 50
HALF_NS = 5e-10  # timestamps are whole nanoseconds
COMPARED = (0, 1, 10, 100)  # steps whose batches are compared
# Limits for the mean difference of frames, of 255. Another conversion may differ by NEAR.
# Neighboring frames that differ by APART can be distinguished. bench/frames.go has the same limits.
NEAR, APART = 3.0, 0.5


def spec(ds, model, tiny=False, image_size=None, rows=250):
    """Returns the rows of a sample:

    keys, and offsets in rows of the clock.

    The clock is that of the dataset, or GRID_HZ if its streams have several clocks.
    """
    features = ds.features
    cameras = (
        [k for k, f in features.items() if f.kind in ("video", "image")]
        if model in ("diffusion", "resnet18", "act")
        else []
    )
    cameras = cameras[: 2 if model == "diffusion" else 1]
    if model in ("diffusion", "resnet18", "act") and not cameras:
        raise RuntimeError(f"{model} learns from frames, and {ds.uri} has no camera")
    clocks = {f.clock for k, f in features.items() if f.kind == "numeric"}
    numbers = [
        k
        for k, f in features.items()
        if f.kind == "numeric"
        and k.startswith("observation.")
        and f.dtype.startswith("float")
        and len(f.shape) == 1
    ]
    states = (
        ["observation.state"] if "observation.state" in numbers and len(clocks) == 1 else numbers
    )
    if not states or "action" not in features:
        raise RuntimeError(f"{ds.uri} has no observation or no action to learn from")
    s = dict(
        model=model,
        states=states,
        action="action",
        cameras=cameras,
        image_size=image_size,
        fps=float(ds.fps or GRID_HZ),
        dropped=DROPPED.get(model, 0),
    )
    if model == "transformer":
        s.update(hz=GRID_HZ, whole=rows, observed=list(range(rows)), ahead=list(range(rows)))
    else:
        observed = OBSERVED.get(model, 1)
        ahead = 16 if tiny and model == "act" else AHEAD.get(model, 16)
        first = 1 - observed if model.startswith("diffusion") else 0
        s.update(
            hz=GRID_HZ if len(clocks) > 1 or not ds.fps else None,
            whole=0,
            observed=list(range(1 - observed, 1)),
            ahead=list(range(first, first + ahead)),
        )
    return s


def loader_options(s):
    """Returns the keywords of the Loader for these rows."""
    import robocache

    keys = [*s["states"], s["action"], *s["cameras"]]
    out = dict(keys=[*keys, "index"], image_size=s["image_size"])
    spans = {k: s["ahead"] if k == s["action"] else s["observed"] for k in keys}
    if s["hz"]:
        seconds = {k: (v[0] / s["hz"], v[-1] / s["hz"], len(v)) for k, v in spans.items()}
        out.update(
            hz=s["hz"] / s["whole"] if s["whole"] else s["hz"],
            windows=robocache.Windows(seconds=seconds),
        )
    else:
        out["delta_timestamps"] = {k: [i / s["fps"] for i in v] for k, v in spans.items()}
    return out


def own_options(a, s, cache=None, device=None):
    """Returns the keywords of the Loader that the job sets."""
    names = ["prefetch", "memory_budget", "pool_size", "pool_episodes"]
    names += ["cache_budget", "cache_format"] if cache else []
    names += ["decode", "device_memory_budget"] if device else []
    own = {k: a[k] for k in names if a.get(k)}
    own.update(
        {
            k: v
            for k, v in (("cache", cache), ("device", device), ("drop_n_last_frames", s["dropped"]))
            if v
        }
    )
    if (
        a.cache == "ram" and not a.cache_budget
    ):  # a cache for half of the set would measure decoding
        own.setdefault(
            "memory_budget",
            os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 // (a.world or 1),
        )
    return common.loader_keywords(own)


def plan(a):
    """Writes the plan (npz) and the reference batches, and returns facts about the set."""
    import robocache

    ds, world = robocache.open(a.uri), a.world or 1
    s = spec(ds, a.model, a.tiny, common.image_hw(a))
    loader = robocache.Loader(
        a.uri,
        batch_size=a.batch_size,
        seed=a.seed,
        shuffle=a.shuffle,
        drop_last=True,
        world_size=world,
        rank=0,
        split="all",
        **loader_options(s),
        **own_options(a, s),
    )
    facts = dict(
        cuda_devices=torch.cuda.device_count() if torch.cuda.is_available() else 0,
        versions=common.versions(),
    )
    steps = loader.num_samples // (a.batch_size * world)
    if facts["cuda_devices"]:
        facts["versions"]["gpu"] = torch.cuda.get_device_name()
    if facts["cuda_devices"] < world and a.device != "cpu":
        return facts
    epochs = max(
        math.ceil((a.warmup_batches + a.steps) / steps) + 2,
        min(MOST_EPOCHS, 4_000_000 // loader.num_samples),
    )
    if epochs > MOST_EPOCHS:
        raise RuntimeError(
            f"the set is too small: an epoch of its {loader.num_samples} samples has {steps} steps, "
            f"and {epochs} epochs would be needed, more than {MOST_EPOCHS}: give fewer --steps, or "
            "a larger set"
        )
    at, stats, ranges = loader.locate(np.arange(loader.num_samples)), ds.compute_stats(), {}
    # `index` of a batch is the row number; on a grid it is the sample number
    ids = (
        np.arange(loader.num_samples)
        if s["hz"]
        else np.concatenate([[0], ds.episodes["lengths"].cumsum()])[at.episode] + at.row
    )
    for name, keys in (("state", s["states"]), ("action", [s["action"]])):
        for bound in ("min", "max"):
            ranges[f"{name}_{bound}"] = np.concatenate(
                [np.asarray(stats[k][bound], np.float32).ravel() for k in keys]
            )
    orders = np.stack(
        [
            [ids[loader.order(e, rank=r)[: steps * a.batch_size]] for r in range(world)]
            for e in range(epochs)
        ]
    )
    np.savez(a.plan, orders=orders, episode=at.episode, row=at.row, spec=json.dumps(s), **ranges)
    p = Plan(a.plan)
    data, note = plain(a.uri, p)
    if data:
        wanted = {
            k: ids
            for k, ids in enumerate(itertools.islice(p.batches(a.batch_size, 0), COMPARED[-1] + 1))
            if k in COMPARED
        }
        p.write({k: p.part(read(data, ids)) for k, ids in wanted.items()})
    if note:
        facts["note"] = note
    return facts


def read(data, ids):
    return torch.utils.data.default_collate([data[int(i)] for i in ids])


def plain(root, p):
    """Returns a reader without a loader, for comparisons, and a note about it, or None."""
    why = None
    for kind in (Streams,) if p.spec["hz"] else (Rows, Own):
        try:
            data = kind(root, p)
            data[int(p.orders.flat[0])]
            return (
                data,
                why
                and "no plain reader for this set: compared with rows that robocache reads one by "
                f"one on the CPU ({why})",
            )
        except (ImportError, OSError, KeyError) as e:
            why = why or f"{type(e).__name__}: {e}"
    return (
        None,
        f"no plain reader for this set: the runners' batches are compared with each other ({why})",
    )


class Plan:
    def __init__(self, path):
        z = np.load(path)
        self.orders, self.episode, self.row, self.spec = (
            z["orders"],
            z["episode"],
            z["row"],
            json.loads(str(z["spec"])),
        )
        self.ranges = {k: z[k] for k in ("state_min", "state_max", "action_min", "action_max")}
        self.compared = path + ".compared.npz"

    def batches(self, size, rank):
        """Yields the sample numbers of this rank's batches, epoch after epoch."""
        for order in self.orders[:, rank]:
            yield from (order[i : i + size] for i in range(0, len(order) - size + 1, size))

    def covered(self, given):
        """Compares delivered ids, [step, rank, sample], with the plan.

        They must be in order, and each sample must occur once per epoch over all ranks.
        """
        steps, ranks, size = given.shape
        want = np.stack(
            [
                np.concatenate([*itertools.islice(self.batches(size, r), steps)]).reshape(
                    steps, size
                )
                for r in range(ranks)
            ],
            1,
        )
        epoch, doubled = self.orders.shape[2] // size, 0
        for lo in range(0, steps, epoch):
            part = given[lo : lo + epoch]
            doubled += part.size - len(np.unique(part))
        return dict(order_wrong=int((want != given).sum()), samples_doubled=int(doubled))

    def part(self, b):
        """Returns the parts of a batch that are compared.

        These are its numbers and the frames of some samples. If frames are not resized, every
        fourth row and column of all frames is added.
        """
        out = {k: v for k, v in b.items() if k != "frames"}
        for c, f in b.get("frames", {}).items():
            out["frames." + c] = f[:8]
            if not self.spec["image_size"]:
                out["all frames." + c] = f[..., ::4, ::4]
        return out

    def near(self, batches, data):
        """Compares the first samples of batches of another decoder, by their ids.

        Numbers must be equal. Frames may differ by a conversion, and must be nearer to the right
        frame than to its neighbors.
        """
        wrong, most = [], 0.0
        for k, got in batches.items():
            ids = got["index"][:8]
            want = self.part(read(data, ids))
            found = [
                f"{n} {d}"
                for n in want
                if not n.startswith(("frames.", "all frames."))
                and (d := difference(np.asarray(want[n]), got[n][:8]))
            ]
            for c in self.spec["cameras"]:
                for i, right, given in zip(
                    ids, np.asarray(want["frames." + c]), got["frames." + c]
                ):
                    apart = mean(right[-1], given[-1])
                    most = max(most, apart)
                    if right.shape != given.shape or apart > NEAR:
                        found.append(f"frame {i} differs by {apart:.3g} of 255 in the mean")
                        continue
                    for n in data.beside(int(i)):
                        other = data.frames(c, [n])[0]
                        if mean(other, right[-1]) >= APART and mean(other, given[-1]) < apart:
                            found.append(f"frame {i} is rather frame {n}")
            if found:
                wrong.append(f"batch {k}: " + "; ".join(found[:4]))
        return dict(
            batches_checked=len(batches),
            batches_wrong=len(wrong),
            wrong=wrong,
            frames_apart=f"compared frames differ from the CPU's by at most {most:.2g} of 255 in the "
            f"mean; {NEAR:g} are allowed for another conversion",
        )

    def write(self, batches):
        np.savez(
            self.compared,
            **{f"{k}/{n}": np.asarray(v) for k, d in batches.items() for n, v in d.items()},
        )

    def compare(self, batches):
        """Compares batches with the reference batches.

        Ids and masks must be equal, numbers within 1e-5 of their range, and frames within 2 of 255.
        If there are no reference batches, these batches become the reference.
        """
        if not os.path.exists(self.compared):
            self.write(batches)
            return dict(batches_checked=0)
        want, wrong, checked = np.load(self.compared), [], 0
        for k, names in batches.items():
            found = []
            for name, got in names.items():
                if f"{k}/{name}" in want.files:
                    found.append(difference(want[f"{k}/{name}"], got))
            checked += bool(found)
            wrong += [
                f"batch {k}: " + "; ".join(f"{n} {d}" for n, d in zip(names, found) if d)
            ] * any(found)
        return dict(batches_checked=checked, batches_wrong=len(wrong), wrong=wrong)


def mean(a, b):
    """Returns the mean difference of two frames."""
    return (
        float(np.abs(np.asarray(a, np.int16) - np.asarray(b, np.int16)).mean())
        if a.shape == b.shape
        else 255.0
    )


def difference(want, got):
    """Describes a significant difference, or returns ""."""
    # the loader has resized the frames
    if want.dtype == np.uint8 and want.shape != got.shape and want.shape[:3] == got.shape[:3]:
        plain = (
            torch.nn.functional.interpolate(
                torch.from_numpy(want).flatten(0, 1).float(),
                got.shape[-2:],
                mode="bilinear",
                antialias=True,
            )
            .view(got.shape)
            .numpy()
        )
        most, unit = float(np.abs(plain - got).mean()), "of 255 in the mean, resized"
        return f"differ by {most:.3g} {unit}" if most > 2 else ""
    if want.shape != got.shape:
        return f"is {got.shape}, expected {want.shape}"
    if want.dtype == np.uint8:
        most = int(np.abs(want.astype(np.int16) - got).max(initial=0))
        return f"differ by {most} of 255" if most > 2 else ""
    if want.dtype.kind == "f":
        most = float(np.abs(want - got).max(initial=0))
        return "" if most <= 1e-5 * max(float(np.ptp(want)), 1e-30) else f"differ by {most:.3g}"
    return "" if np.array_equal(want, got) else "differ"


class Rows(torch.utils.data.Dataset):
    """Reads a LeRobot set without a robot library.

    Rows are in memory. PyAV decodes frames from the preceding key frame, with one decoder per
    worker and file.
    """

    def __init__(self, root, p):
        from .lerobot_set import Set

        self.spec, self.sets = p.spec, {c: Set(root, c) for c in p.spec["cameras"]}
        self.set = next(iter(self.sets.values()), None) or Set(root)
        columns = self.set.columns([*p.spec["states"], p.spec["action"]])
        self.state, self.action = (
            np.concatenate([columns[k] for k in p.spec["states"]], -1),
            columns[p.spec["action"]],
        )
        self.open = {}

    def __getitem__(self, i):
        s, e = self.spec, self.set.episode(i)
        lo, hi = int(self.set.ends[e]) - self.set.lengths[e], int(self.set.ends[e]) - 1
        seen, ahead = (i + np.array(s[k]) for k in ("observed", "ahead"))
        out = dict(
            index=i,
            state=self.state[seen.clip(lo, hi)],
            action=self.action[ahead.clip(lo, hi)],
            action_is_pad=(ahead < lo) | (ahead > hi),
        )
        if s["cameras"]:
            out["frames"] = {c: np.stack(self.frames(c, seen.clip(lo, hi))) for c in s["cameras"]}
        return out

    def frames(self, camera, rows):
        from .lerobot_set import Video

        s = self.sets[camera]
        name, wanted, found = s.files[s.file[rows[0]]], [int(s.number[r]) for r in rows], {}
        if name not in self.open:
            self.open[name] = Video(name)
        for n, frame in self.open[name].frames(wanted[0]):
            found[n] = frame.transpose(2, 0, 1)
            if n >= wanted[-1]:
                return [found[n] for n in wanted]
        raise RuntimeError(f"{name}: frames {wanted} did not come")

    def beside(self, i):
        """Returns the previous and the next row in the same episode."""
        e = self.set.episode(i)
        return [
            n
            for n in (i - 1, i + 1)
            if self.set.ends[e] - self.set.lengths[e] <= n < self.set.ends[e]
        ]


class Episodes:
    """The rows of a set, ordered by episode."""

    def __init__(self, lengths):
        self.lengths = np.array(lengths)
        self.ends = self.lengths.cumsum()

    def episode(self, i):
        return int(np.searchsorted(self.ends, i, "right"))


def columns(ds, s):
    """Returns state and action of all rows, as robocache reads them."""
    whole = lambda k: np.concatenate(
        [np.asarray(e.streams[k].values, np.float32).reshape(len(e), -1) for e in ds]
    )  # noqa: E731
    return np.concatenate([whole(k) for k in s["states"]], -1), whole(s["action"])


class Own(Rows):
    """Replaces Rows if PyAV or pyarrow is missing.

    robocache reads the rows, and decodes one frame at a time on the CPU.
    """

    def __init__(self, root, p):
        import robocache

        self.spec, self.ds = p.spec, robocache.open(root)
        self.set = Episodes(self.ds.episodes["lengths"])
        self.state, self.action = columns(self.ds, p.spec)

    def frames(self, camera, rows):
        e = self.set.episode(int(rows[0]))
        lo = int(self.set.ends[e] - self.set.lengths[e])
        return list(self.ds.episode(e).streams[camera].frames([int(r) - lo for r in rows]))


class Streams(torch.utils.data.Dataset):
    """Reads streams with separate clocks from one HDF5 file.

    The data is at data/demo_N/<path>, the times at <path>_timestamps or those of the actions
    (seconds, or int64 ns). Each worker has one file handle. One searchsorted and one multiply-add
    over all columns bring a stream onto the grid.
    """

    def __init__(self, root, p=None):
        self.root, self.plan, self.file, self.times = root, p, None, {}

    def clock(self, episode, key):
        """Returns the path of a stream and its times in seconds."""
        import h5py

        if self.file is None:
            self.file = h5py.File(self.root, "r")
            names = [n for n in self.file["data"] if n.startswith("demo")]
            # by episode index
            self.demos = {int("".join(filter(str.isdigit, n)) or 0): n for n in names}
        demo = f"data/{self.demos[episode]}/"
        path = demo + ("actions" if key == "action" else "obs/" + key.removeprefix("observation."))
        if (episode, key) not in self.times:
            name = path + "_timestamps"
            t = self.file[name if name in self.file else demo + "actions_timestamps"][()]
            self.times[episode, key] = t / 1e9 if t.dtype.kind == "i" else t
        return path, self.times[episode, key]

    def stream(self, episode, key, at):
        """Returns interpolated values [len(at), D] at times at, and where at is outside the stream.

        Interpolation is linear; the first and the last value are held.
        """
        path, t = self.clock(episode, key)
        i = np.searchsorted(t, at, "right").clip(1, len(t) - 1)
        lo = int(i.min()) - 1
        v = self.file[path][lo : int(i.max()) + 1]
        w = ((at - t[i - 1]) / (t[i] - t[i - 1])).clip(0, 1)[:, None].astype(np.float32)
        a, b = v[i - 1 - lo], v[i - lo]
        return a + (b - a) * w, (at < t[0] - HALF_NS) | (at > t[-1] + HALF_NS)

    def begin(self, episode, keys):
        """Returns the time at which all streams have begun."""
        return max(self.clock(episode, k)[1][0] for k in keys)

    def __getitem__(self, i):
        s, e = self.plan.spec, int(self.plan.episode[i])
        now = (
            self.begin(e, [*s["states"], s["action"]])
            + int(self.plan.row[i]) * (s["whole"] or 1) / s["hz"]
        )
        seen, ahead = (now + np.array(s[k]) / s["hz"] for k in ("observed", "ahead"))
        state = np.concatenate([self.stream(e, k, seen)[0] for k in s["states"]], -1)
        action, pad = self.stream(e, s["action"], ahead)
        return dict(index=i, state=state, action=action, action_is_pad=pad)


def ordered(data, p, a):
    """Returns a DataLoader with the best settings, in the order of the plan."""
    order = (ids.tolist() for ids in p.batches(a.batch_size, a.rank))
    return common.torch_loader(
        data, a, batch_size=1, batch_sampler=order, pin_memory=a.device != "cpu"
    )


def torch_batches(root, p, a):
    """Returns the batches of the baseline, a plain DataLoader."""
    return iter(ordered((Streams if p.spec["hz"] else Rows)(root, p), p, a))


def lerobot_batches(root, p, a):
    """Returns the batches of LeRobot's dataset class."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    s = p.spec
    deltas = {
        k: [i / s["fps"] for i in (s["ahead"] if k == s["action"] else s["observed"])]
        for k in [*s["states"], s["action"], *s["cameras"]]
    }
    ds = LeRobotDataset("bench/set", root=root, delta_timestamps=deltas, return_uint8=True)
    return (formed(b, s) for b in ordered(ds, p, a))


def robocache_batches(root, p, a, cache=None):
    import robocache

    loader = robocache.Loader(
        root,
        batch_size=a.batch_size,
        seed=a.seed,
        shuffle=a.shuffle,
        drop_last=True,
        rank=a.rank,
        world_size=a.world,
        split="all",
        threads=a.threads or None,
        **loader_options(p.spec),
        **own_options(a, p.spec, cache, device=a.device),
    )

    def epochs():
        while True:
            for b in loader:
                yield formed(b, p.spec)

    return epochs(), loader


def formed(b, s):
    """Converts a batch of RoboCache or LeRobot to the names that the models use."""
    join = lambda k: (
        b[k] if b[k].dim() == 3 else b[k].unflatten(-1, (-1, 1)) if b[k].dim() == 2 else b[k]
    )  # noqa: E731
    out = dict(
        index=b["index"],
        state=torch.cat([join(k) for k in s["states"]], -1),
        action=join(s["action"]),
        action_is_pad=b[s["action"] + "_is_pad"],
    )
    if s["cameras"]:
        out["frames"] = {c: b[c] if b[c].dim() == 5 else b[c].unsqueeze(1) for c in s["cameras"]}
    return out
