"""A map-style Dataset over (file, frame) with torchcodec and DataLoader workers.

This is what a PyTorch user writes without a robot library. Each worker keeps its decoders open,
with one thread each, exact seeking, and uint8. The frames of a batch are requested in one sorted
call per file (__getitems__), so that frames with a common decode group are decoded together.
"""

from . import common
from .lerobot_set import Set

import torch
from torchcodec.decoders import VideoDecoder


class Frames(torch.utils.data.Dataset):
    def __init__(self, s, window):
        self.set, self.n, self.open = s, window, {}
        self.columns = {k: torch.from_numpy(v) for k, v in s.columns(s.numeric).items()}

    def __len__(self):
        return int(self.set.ends[-1])

    def decoder(self, f):
        if f not in self.open:
            self.open[f] = VideoDecoder(self.set.files[f], num_ffmpeg_threads=1, seek_mode="exact")
        return self.open[f]

    def __getitems__(self, indices):
        items, wanted = [], {}
        for b, i in enumerate(indices):
            w = self.set.window(i, self.n)
            items.append(
                {
                    "index": i,
                    "image": [None] * len(w),
                    **{
                        k: v[torch.from_numpy(w)] if self.n else v[i]
                        for k, v in self.columns.items()
                    },
                }
            )
            for k, frame in enumerate(self.set.number[w]):
                wanted.setdefault(int(self.set.file[i]), {}).setdefault(int(frame), []).append(
                    (b, k)
                )
        for f, places in wanted.items():
            numbers = sorted(places)
            for frame, image in zip(numbers, self.decoder(f).get_frames_at(numbers).data):
                for b, k in places[frame]:
                    items[b]["image"][k] = image
        for item in items:
            item["image"] = torch.stack(item["image"]) if self.n else item["image"][0]
        return items


def main(a):
    common.imported()
    s = Set(a.uri)
    loader = common.torch_loader(
        Frames(s, a.window), a, shuffle=True, generator=torch.Generator().manual_seed(a.seed)
    )
    common.measure(lambda: s.numbered((b["index"].numpy(), b) for b in loader), a, row=s.row)


common.run(main)
