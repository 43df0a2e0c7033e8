"""Batches of the peers that decode on the GPU:

torchcodec's VideoDecoder and DALI's video reader.

Each uses its best documented settings. The harness gives them files and frame numbers
(bench.framePlaces). They gather the numbers of the rows on the device. Threads make whole batches
ahead. torchcodec follows the plan. DALI shuffles by itself, so its samples are identified by the
frame numbers that it returns.
"""

import contextlib, itertools, json, queue, threading

import numpy as np
import torch
from . import train_data

AHEAD = 2  # batches per thread
SHUFFLED = 256  # size of DALI's shuffle buffer; DALI also shuffles its shard before reading


class Made:
    """Batches that threads make, each thread on its own stream.

    Batches are returned from the threads in turn, which keeps a given order.
    """

    def __init__(self, makes, device):
        self.device, self.over, self.queues = (
            device,
            threading.Event(),
            [queue.Queue(AHEAD) for _ in makes],
        )
        self.threads = [
            threading.Thread(target=self.work, args=x, daemon=True) for x in zip(makes, self.queues)
        ]
        for t in self.threads:
            t.start()

    def work(self, make, q):
        try:
            with (
                torch.cuda.stream(torch.cuda.Stream(self.device))
                if self.device != "cpu"
                else contextlib.nullcontext()
            ):
                for b in make:
                    ready = None
                    if self.device != "cpu":
                        ready = torch.cuda.Event()
                        ready.record()
                    if not self.put(q, (b, ready)):
                        return
            self.put(q, (None, None))
        except BaseException as e:
            self.put(q, (e, None))

    def put(self, q, item):
        while not self.over.is_set():
            with contextlib.suppress(queue.Full):
                q.put(item, timeout=0.1)
                return True
        return False

    def __iter__(self):
        for q in itertools.cycle(self.queues):
            b, ready = q.get()
            if isinstance(b, BaseException):  # DALI's messages end with the cause
                raise RuntimeError(f"{type(b).__name__}: {' '.join(str(b).split())[-250:]}") from b
            if b is None:
                return
            if ready:
                now = torch.cuda.current_stream()
                now.wait_event(ready)
                for t in [
                    *b["frames"].values(),
                    *(t for t in b.values() if not isinstance(t, dict)),
                ]:
                    t.record_stream(now)
            yield b

    def close(self):
        self.over.set()
        for t in self.threads:
            t.join(10)


class Files:
    """The positions of the frames of a set, and its numbers on the device."""

    def __init__(self, a, p):
        import robocache

        s = p.spec
        with open(a.places) as f:
            at = json.load(f)
        if s["hz"] or s["cameras"] != [at["camera"]]:
            raise RuntimeError(
                f"{a.runner} reads frames of the first camera by number, of rows on the set's own clock"
            )
        self.camera, self.files, self.file, self.number = (
            at["camera"],
            at["files"],
            np.array(at["file"]),
            np.array(at["number"]),
        )
        episodes, on = (
            train_data.Episodes(at["lengths"]),
            lambda v: torch.from_numpy(np.ascontiguousarray(v)).to(a.device),
        )
        self.low, self.high = episodes.ends - episodes.lengths, episodes.ends - 1
        self.low, self.high = (np.repeat(v, episodes.lengths) for v in (self.low, self.high))
        self.seen = np.array(s["observed"])
        self.state, self.action = (on(v) for v in train_data.columns(robocache.open(a.uri), s))
        self.on, self.bounds = on, (on(self.low)[:, None], on(self.high)[:, None])
        self.observed, self.ahead = (on(np.array(s[k])) for k in ("observed", "ahead"))

    def rows(self, ids):
        """Returns the rows that samples observe, [B, To], on the host."""
        return (ids[:, None] + self.seen).clip(self.low[ids][:, None], self.high[ids][:, None])

    def batch(self, ids, frames):
        low, high = (b[ids] for b in self.bounds)
        seen, ahead = ids[:, None] + self.observed, ids[:, None] + self.ahead
        return dict(
            index=ids,
            state=self.state[seen.clamp(low, high)],
            action=self.action[ahead.clamp(low, high)],
            action_is_pad=(ahead < low) | (ahead > high),
            frames={self.camera: frames},
        )


def torchcodec(a, p):
    """Returns batches of torchcodec.

    Each thread has its own decoders. It requests the frames of a batch in one sorted call per file,
    so that frames with a common decode group are decoded together.
    """
    from torchcodec.decoders import VideoDecoder

    f = Files(a, p)

    def decoder(name):
        d = VideoDecoder(name, device=a.device, seek_mode="exact", num_ffmpeg_threads=1)
        if getattr(d, "cpu_fallback", None):
            raise RuntimeError(f"{name}: torchcodec decodes it on the CPU: {d.cpu_fallback}")
        return d

    def make(k):
        opened = {}
        for ids in itertools.islice(p.batches(a.batch_size, a.rank), k, None, a.workers):
            rows, out = f.rows(ids), None
            flat = rows.ravel()
            for name in np.unique(f.file[flat]):
                if name not in opened:
                    opened[name] = decoder(f.files[name])
                places = np.flatnonzero(f.file[flat] == name)
                places = places[np.argsort(f.number[flat[places]], kind="stable")]
                data = opened[name].get_frames_at(f.number[flat[places]].tolist()).data
                if out is None:  # same memory layout as decoded frames
                    out = torch.empty(
                        (len(flat), *data.shape[2:], 3), dtype=torch.uint8, device=a.device
                    ).permute(0, 3, 1, 2)
                out[f.on(places)] = data
            yield f.batch(f.on(ids), out.unflatten(0, rows.shape))

    return Made([make(k) for k in range(a.workers)], a.device)


def dali(a, p):
    """Returns batches of DALI, with one pipeline per thread and shard."""
    from nvidia.dali import fn, pipeline_def

    f = Files(a, p)
    if p.spec["observed"] != [0] or a.device == "cpu":
        raise RuntimeError(f"{a.runner}: samples of one frame alone, on a GPU")
    sizes = [int(f.number[f.file == k].max()) + 1 for k in range(len(f.files))]
    first = np.concatenate([[0], np.cumsum(sizes)])
    rows = np.full(first[-1], -1)
    rows[first[f.file] + f.number] = np.arange(len(f.file))
    first, rows = f.on(first), f.on(rows)

    @pipeline_def
    def frames(shard):
        return tuple(
            fn.readers.video(
                device="gpu",
                filenames=f.files,
                labels=list(range(len(f.files))),
                sequence_length=1,
                enable_frame_num="scalar",
                random_shuffle=True,
                initial_fill=SHUFFLED,
                num_shards=a.workers,
                shard_id=shard,
                prefetch_queue_depth=2,
                skip_vfr_check=True,
            )
        )

    def make(k):
        pipe = frames(
            shard=k,
            batch_size=a.batch_size,
            num_threads=1,
            device_id=torch.device(a.device).index,
            seed=a.seed + 1 + k,
            prefetch_queue_depth=2,
        )
        pipe.build()
        while True:
            # DALI reuses the output in its next run, so the copy must be complete.
            video, label, number = (torch.from_dlpack(x.as_tensor()) for x in pipe.run())
            ids = rows[
                first[label.to(a.device).flatten().long()] + number.to(a.device).flatten().long()
            ]
            images = video.permute(0, 1, 4, 2, 3).clone()
            torch.cuda.current_stream().synchronize()
            yield f.batch(ids, images)

    return Made([make(k) for k in range(a.workers)], a.device)


def batches(a, p, stack):
    made = (torchcodec if a.runner == "torchcodec-cuda" else dali)(a, p)
    stack.callback(made.close)
    return iter(made)
