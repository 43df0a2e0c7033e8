"""Writes a replay buffer in UMI's layout, as a folder and as a zip file.

The writer is zarr-python with imagecodecs' JPEG XL. The script prints JSON: for each array the
sha256 of its values as read by the same libraries. Usage: umi.py OUT
"""

import hashlib
import json
import os
import sys
import warnings
import zipfile

warnings.simplefilter("ignore")
import numpy as np
import zarr
from imagecodecs import numcodecs as ic

ic.register_codecs(verbose=False)
out = sys.argv[1]
rng = np.random.default_rng(11)
T, ends = 23, [9, 23]
y, x = np.mgrid[0:64, 0:80]
video = (
    np.stack(
        [
            np.stack(
                [
                    127 + 90 * np.sin((x + 3 * t) / 9),
                    255 * ((x // 16 + y // 16 + t) % 2),
                    255 * y / 64,
                ],
                -1,
            )
            for t in range(T)
        ]
    )
    .clip(0, 255)
    .astype(np.uint8)
)
root = os.path.join(out, "umi.zarr")
g = zarr.open_group(root, mode="w", zarr_format=2)
arrays = {}


def put(name, a, chunks, codec=None):
    z = g.create_array(name, shape=a.shape, dtype=a.dtype, chunks=chunks, compressors=codec)
    z[:] = a
    arrays[name] = hashlib.sha256(np.ascontiguousarray(z[:]).tobytes()).hexdigest()


put("data/camera0_rgb", video, (1, 64, 80, 3), ic.Jpegxl(lossless=True))
put("data/camera1_rgb", video, (1, 64, 80, 3), ic.Jpegxl(level=99, numthreads=1, lossless=False))
put("data/camera2_rgb", video, (8, 64, 80, 3), ic.Jpegxl(lossless=True))
put("data/camera0_mask", video[..., :1], (1, 64, 80, 1), ic.Jpegxl(lossless=True))
put(
    "data/camera0_depth",
    rng.integers(0, 65536, (T, 64, 80), np.uint16),
    (1, 64, 80),
    ic.Jpegxl(lossless=True),
)
put("data/robot0_eef_pos", rng.normal(size=(T, 3)).astype(np.float32), (T, 3))
put("data/robot0_eef_rot_axis_angle", rng.normal(size=(T, 3)).astype(np.float32), (T, 3))
put("data/robot0_gripper_width", rng.random((T, 1)).astype(np.float32), (T, 1))
put("data/robot0_demo_start_pose", rng.normal(size=(T, 6)), (T, 6))
put("meta/episode_ends", np.array(ends, np.int64), (2,))
with zipfile.ZipFile(os.path.join(out, "umi.zarr.zip"), "w", zipfile.ZIP_STORED) as z:
    for folder, _, files in os.walk(root):
        for f in files:
            p = os.path.join(folder, f)
            z.write(p, os.path.relpath(p, root))
print(json.dumps(arrays))
