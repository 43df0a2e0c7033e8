"""lerobot with its best settings:

return_uint8, torchcodec, persistent workers, one torch thread.

The option streaming selects StreamingLeRobotDataset on the local folder. The option image_size adds
a torchvision v2 resize, as its users do.
"""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
from . import common

import torch


def main(a):
    if a.streaming:
        from lerobot.datasets.streaming_dataset import StreamingLeRobotDataset as Dataset
    else:
        from lerobot.datasets.lerobot_dataset import LeRobotDataset as Dataset
    from lerobot.datasets.dataset_metadata import LeRobotDatasetMetadata

    kw = dict(buffer_size=1000, seed=a.seed) if a.streaming else {}
    if a.image_size:
        from torchvision.transforms import v2

        kw["image_transforms"] = v2.Resize(common.image_hw(a), antialias=True)
    common.imported()
    meta = LeRobotDatasetMetadata("bench/set", root=a.uri)
    cameras = list(meta.video_keys)
    if a.video == "one" and len(cameras) > 1 or a.video == "none" and cameras:
        raise RuntimeError(
            "lerobot decodes every camera: give it a set with the wanted cameras only"
        )
    keys = [k for k in ("observation.state", "action") if k in meta.features] + cameras
    ds = Dataset(
        "bench/set",
        root=a.uri,
        delta_timestamps=common.window_offsets(a, meta.fps, keys),
        return_uint8=True,
        **kw,
    )
    loader = common.torch_loader(
        ds,
        a,
        **(
            {}
            if a.streaming
            else dict(shuffle=True, generator=torch.Generator().manual_seed(a.seed))
        ),
    )
    epoch = lambda: ((b["index"].numpy(), b["episode_index"].numpy(), b) for b in loader)
    common.measure(
        epoch,
        a,
        dict(num_cameras=len(cameras), fps=float(meta.fps)),
        images=lambda b, key: b[key],
        cameras=cameras,
    )


common.run(main)
