"""CPU seconds of augmenting 1,000 images, 256×256 to 224×224, uint8: Loader(augment=…) beside torchvision.transforms.v2 doing the same, in one process.

    PYTHONPATH=python .venv/bin/python bench/runners/augment.py DATASET

Ours is an epoch from the RAM cache with augment= less the same epoch without it; torchvision's an own draw for each image, as training needs. One thread
each; runs alternate; the median of five, and the range.
"""

import statistics
import sys
import time

import torch
import torchvision
from torchvision.transforms import v2

import robocache

REPEATS = 5
JITTER = {"brightness": 0.2, "contrast": 0.2, "saturation": 0.2, "hue": 0.05}
CASES = {
    "crop and flip": ({"random_crop": {"size": (224, 224)}, "hflip": {"p": 0.5}}, [v2.RandomCrop(224), v2.RandomHorizontalFlip()]),
    "and colour jitter": ({"random_crop": {"size": (224, 224)}, "hflip": {"p": 0.5}, "color_jitter": JITTER}, [v2.RandomCrop(224), v2.RandomHorizontalFlip(), v2.ColorJitter(0.2, 0.2, 0.2, 0.05)]),
    "crop and noise": ({"random_crop": {"size": (224, 224)}, "noise": {"std": 0.02}}, [v2.RandomCrop(224), v2.ToDtype(torch.float32, scale=True), v2.GaussianNoise(0, 0.02), v2.ToDtype(torch.uint8, scale=True)]),
}


def epoch(loader: robocache.Loader) -> tuple[float, int]:
    begin, n = time.process_time(), 0
    for batch in loader:
        n += len(next(iter(batch.values())))
    return time.process_time() - begin, n


def main(path: str) -> None:
    torch.set_num_threads(1)
    camera = next(k for k, f in robocache.open(path).features.items() if f.kind == "video")
    how = {"keys": [camera], "image_size": (256, 256), "batch_size": 32, "threads": 1, "cache": "ram", "cache_format": "rgb"}
    print(f"torchvision {torchvision.__version__}, torch {torch.__version__}, robocache {robocache.__version__}")
    plain = robocache.Loader(path, **how)
    epoch(plain)
    images = torch.cat([b[camera] for b in plain])[:1000]
    for name, (ours, theirs) in CASES.items():
        loader, transform = robocache.Loader(path, augment=ours, **how), v2.Compose(theirs)
        epoch(loader)
        a, b = [], []
        for _ in range(REPEATS):
            (base, n), (with_it, _) = epoch(plain), epoch(loader)
            a.append((with_it - base) / n * 1000)
            begin = time.process_time()
            for image in images:
                transform(image)
            b.append((time.process_time() - begin) / len(images) * 1000)
        x, y = statistics.median(a), statistics.median(b)
        print(f"{name:18} ours {x:.3f} ({min(a):.3f}–{max(a):.3f}), torchvision {y:.3f} ({min(b):.3f}–{max(b):.3f}) CPU s: {y / x:.1f} times")


if __name__ == "__main__":
    main(sys.argv[1])
