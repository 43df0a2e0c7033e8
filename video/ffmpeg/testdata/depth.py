"""Prints lerobot's dequantised millimetres for the codes 0…4095, one line a code set.

usage: depth.py MIN,MAX,SHIFT,LOG ...    (LOG is 0 or 1)
"""
import sys

import torch
from lerobot.datasets.depth_utils import dequantize_depth

torch.set_num_threads(1)
for arg in sys.argv[1:]:
    lo, hi, shift, log = arg.split(",")
    codes = torch.arange(4096, dtype=torch.int32).reshape(1, 64, 64)
    mm = dequantize_depth(codes, depth_min=float(lo), depth_max=float(hi), shift=float(shift), use_log=log == "1", output_unit="mm")
    print(*(int(v) for v in mm.flatten().tolist()))
