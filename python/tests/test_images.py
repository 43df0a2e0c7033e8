"""Image geometry and augmentation, as a user asks for them."""

from __future__ import annotations

import pytest
from conftest import dataset_path

import robocache

torch = pytest.importorskip("torch", reason="torch is not installed")
CAM = "observation.images.cam_high"


@pytest.fixture(scope="module")
def h264() -> str:
    return dataset_path("g1_h264_v30")


def test_resize(h264: str) -> None:
    def first(**how: object) -> torch.Tensor:
        return next(iter(robocache.Loader(h264, batch_size=2, shuffle=False, keys=[CAM], **how)))[CAM]

    box = first(image_size=(100, 100), image_resize="letterbox")
    assert torch.equal(box[:, :, 12:87], first(image_size=(75, 100))) and not box[:, :, :12].any() and not box[:, :, 87:].any()
    assert torch.equal(first(image_size=(100, 100), image_resize="crop"), first(image_size=(100, 133))[..., 16:116])
    assert torch.equal(first(image_size=(100, 100), image_resize="stretch"), first(image_size=(100, 100)))
    item = robocache.MapDataset(h264, keys=[CAM], image_size=(100, 100), image_resize="letterbox")[0][CAM]
    assert torch.equal(item, box[0])
    same = robocache.LeRobotDataset(h264, keys=[CAM], image_size=(100, 100), image_resize="letterbox", return_uint8=True)[0][CAM]
    assert torch.equal(same, box[0])
    mix = robocache.Loader([robocache.Mix(h264, image_resize="letterbox"), robocache.Mix(h264)], batch_size=64, shuffle=False, keys=[CAM], image_size=(100, 100))
    batch = next(iter(mix))
    boxed = (batch[CAM][:, :, :12] == 0).flatten(1).all(1)
    assert boxed.any() and torch.equal(boxed, batch["dataset_index"] == 0)


def test_resize_misuse(h264: str) -> None:
    with pytest.raises(robocache.Misuse, match="image_size"):
        robocache.Loader(h264, keys=[CAM], image_resize="crop")
    with pytest.raises(robocache.Misuse, match="letterbox"):
        robocache.MapDataset(h264, keys=[CAM], image_size=(10, 10), image_resize="letterbx")
