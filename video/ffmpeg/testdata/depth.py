"""Prints lerobot's dequantised depth for the codes 0…4095, one line a code set: the MD5 of the millimetres as little-endian float32, and the metres
of every 45th code as float32 in hexadecimal.

usage: depth.py MIN,MAX,SHIFT,LOG ...    (LOG is 0 or 1)
"""
import hashlib
import sys

import torch
from lerobot.datasets.depth_utils import dequantize_depth

torch.set_num_threads(1)
for arg in sys.argv[1:]:
    lo, hi, shift, log = arg.split(",")
    codes = torch.arange(4096, dtype=torch.int32).reshape(1, 64, 64)

    def depth(unit):
        d = dequantize_depth(codes, depth_min=float(lo), depth_max=float(hi), shift=float(shift), use_log=log == "1", output_unit=unit)
        return d.flatten().to(torch.float32).numpy()

    print(arg, hashlib.md5(depth("mm").astype("<f4").tobytes()).hexdigest(), *(f"{v:08x}" for v in depth("m")[::45].view("u4")))
