"""Writes two episodes in ALOHA's layout, and the results of h5py and PIL for them.

Tests use them if the shared data is missing. Usage: python make.py FOLDER
"""

import hashlib
import io
import json
import os
import sys

import h5py
import numpy as np
from PIL import Image

out = sys.argv[1]
os.makedirs(f"{out}/oracle")
rng = np.random.default_rng(0)
sha = lambda b: hashlib.sha256(b).hexdigest()  # noqa: E731
x, y = np.meshgrid(np.arange(320), np.arange(240))


def image(step: int, camera: int) -> bytes:
    pixels = np.stack([x * 0.7 + step, y + 40 * camera, (x + y) * 0.4 + 3 * step], -1).astype(
        np.uint8
    )
    pixels[step : step + 50, 60:120] = 200  # makes the lengths of the images differ
    b = io.BytesIO()
    Image.fromarray(pixels).save(b, "JPEG", quality=50)
    return b.getvalue()


for episode, steps in enumerate((70, 90)):
    path = f"{out}/episode_{episode}.hdf5"
    cameras = {
        c: [image(k, i) for k in range(steps)] for i, c in enumerate(("cam_high", "cam_low"))
    }
    width = max(len(b) for images in cameras.values() for b in images)
    with h5py.File(path, "w") as f:
        f.attrs["sim"], f.attrs["compress"] = False, True
        for c, images in cameras.items():
            rows = np.zeros((steps, width), np.uint8)
            for k, b in enumerate(images):
                rows[k, : len(b)] = np.frombuffer(b, np.uint8)
            f.create_dataset(f"observations/images/{c}", data=rows, chunks=(1, width))
        for name in ("observations/qpos", "observations/qvel", "action"):
            f.create_dataset(name, data=rng.standard_normal((steps, 14)).astype(np.float32))
        f.create_dataset(
            "compress_len",
            data=np.array([[len(b) for b in images] for images in cameras.values()], np.float32),
        )
    with h5py.File(path) as f:
        objects = {
            n: {"sha256": sha(f[n][()].tobytes())}
            for n in ("observations/qpos", "observations/qvel", "action")
        }
    decoded = {}
    for c, images in cameras.items():
        for k in (0, steps // 2, steps - 1):
            rgb = np.asarray(Image.open(io.BytesIO(images[k])).convert("RGB"))
            decoded.setdefault(c, {})[str(k)] = {
                "length": len(images[k]),
                "shape": rgb.shape,
                "rgb_sha256": sha(rgb.tobytes()),
            }
    with open(f"{out}/oracle/episode_{episode}.json", "w") as file:
        json.dump({"objects": objects, "jpeg_rgb": decoded}, file)
