"""What a PyTorch user writes without a robot library: a map-style Dataset over (file, frame), torchcodec, DataLoader workers.

Decoders stay open in each worker, one thread each, exact seeking, uint8. batched: the frames of a batch are asked for in one sorted
call a file (__getitems__), so that torchcodec decodes what they share once."""
import common
from lerobot_set import Set

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

    def rows(self, i):
        w = self.set.window(i, self.n)
        return {"index": i, **{k: v[torch.from_numpy(w)] if self.n else v[i] for k, v in self.columns.items()}}, w

    def __getitem__(self, i):
        item, w = self.rows(i)
        d = self.decoder(int(self.set.file[i]))
        if not self.n:
            item["image"] = d.get_frame_at(int(self.set.number[i])).data
            return item
        first, last = int(self.set.number[w[0]]), int(self.set.number[w[-1]])
        got = d.get_frames_in_range(first, last + 1).data
        item["image"] = got[torch.from_numpy(self.set.number[w] - first)] if len(got) < self.n else got
        return item


class Batched(Frames):
    def __getitems__(self, indices):
        items, wanted = [], {}
        for b, i in enumerate(indices):
            item, w = self.rows(i)
            items.append(item)
            wanted.setdefault(int(self.set.file[i]), []).extend((int(o), b, k) for k, o in enumerate(self.set.number[w]))
        for f, parts in wanted.items():
            numbers = sorted({o for o, _, _ in parts})
            got = self.decoder(f).get_frames_at(numbers).data
            slot = {o: k for k, o in enumerate(numbers)}
            for o, b, k in parts:
                if not self.n:
                    items[b]["image"] = got[slot[o]]
                    continue
                if "image" not in items[b]:
                    items[b]["image"] = torch.empty((self.n, *got.shape[1:]), dtype=torch.uint8)
                items[b]["image"][k] = got[slot[o]]
        return items


def main(a):
    common.imported()
    s = Set(a.uri)
    ds = (Batched if a.batched else Frames)(s, a.window)
    loader = common.torch_loader(ds, a, shuffle=True, generator=torch.Generator().manual_seed(a.seed))
    common.measure(lambda: s.numbered((b["index"].numpy(), b) for b in loader), a, row=s.row)


common.run(main)
