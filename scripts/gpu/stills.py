"""Compares nvJPEG with libjpeg-turbo, both through torchvision, on each *.jpg of a folder, in RGB.

scripts/gpu/clips.sh makes such files.

usage: python3 scripts/gpu/stills.py DIR
"""

import glob, os, sys

import torch, torchvision
from torchvision.io import ImageReadMode, decode_jpeg, read_file

print(
    "torch", torch.__version__, "torchvision", torchvision.__version__, torch.cuda.get_device_name()
)
for name in sorted(glob.glob(os.path.join(sys.argv[1], "*.jpg"))):
    data = read_file(name)
    host, device = (
        decode_jpeg(data, mode=ImageReadMode.RGB),
        decode_jpeg(data, mode=ImageReadMode.RGB, device="cuda").cpu(),
    )
    apart = (host.int() - device.int()).abs()
    share = [f"{float(x.float().mean()):.4f}" for x in (apart == 0, apart == 1, apart > 1)]
    print(
        os.path.basename(name), "equal, one level apart, more:", *share, "at most", int(apart.max())
    )
