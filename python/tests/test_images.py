"""Image geometry and augmentation through the public options."""

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
        return next(iter(robocache.Loader(h264, batch_size=2, shuffle=False, keys=[CAM], **how)))[
            CAM
        ]

    box = first(image_size=(100, 100), images=robocache.Images(fit="letterbox"))
    assert (
        torch.equal(box[:, :, 12:87], first(image_size=(75, 100)))
        and not box[:, :, :12].any()
        and not box[:, :, 87:].any()
    )
    assert torch.equal(
        first(image_size=(100, 100), images=robocache.Images(fit="crop")),
        first(image_size=(100, 133))[..., 16:116],
    )
    assert torch.equal(
        first(image_size=(100, 100), images=robocache.Images(fit="stretch")),
        first(image_size=(100, 100)),
    )
    item = robocache.MapDataset(
        h264, keys=[CAM], image_size=(100, 100), images=robocache.Images(fit="letterbox")
    )[0][CAM]
    assert torch.equal(item, box[0])
    same = robocache.LeRobotDataset(
        h264,
        keys=[CAM],
        image_size=(100, 100),
        images=robocache.Images(fit="letterbox"),
        return_uint8=True,
    )[0][CAM]
    assert torch.equal(same, box[0])
    mix = robocache.Loader(
        [robocache.Mix(h264, images=robocache.Images(fit="letterbox")), robocache.Mix(h264)],
        batch_size=64,
        shuffle=False,
        keys=[CAM],
        image_size=(100, 100),
    )
    batch = next(iter(mix))
    boxed = (batch[CAM][:, :, :12] == 0).flatten(1).all(1)
    assert boxed.any() and torch.equal(boxed, batch["dataset_index"] == 0)


def test_resize_misuse(h264: str) -> None:
    with pytest.raises(robocache.Misuse, match="image_size"):
        robocache.Loader(h264, keys=[CAM], images=robocache.Images(fit="crop"))
    with pytest.raises(robocache.Misuse, match="letterbox"):
        robocache.MapDataset(
            h264, keys=[CAM], image_size=(10, 10), images=robocache.Images(fit="letterbx")
        )


AUGMENT = {
    "random_crop": {"size": (88, 90), "pad": 4},
    "color_jitter": {"brightness": 0.3, "contrast": 0.3, "saturation": 0.3, "hue": 0.1},
    "hflip": {"p": 0.5, "negate": {"action": [0]}},
    "noise": {"std": {CAM: 0.02, "action": 0.1}},
}


def samples(
    uri: str, epoch: int = 0, **how: object
) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
    config: dict = {
        "batch_size": 8,
        "keys": [CAM, "action", "index"],
        "seed": 5,
        "image_size": (96, 96),
        "augment": robocache.Augment(**AUGMENT),
        "episodes": [0],
        **how,
    }
    loader = robocache.Loader(uri, **config)
    loader.set_epoch(epoch)
    out = {}
    for batch in loader:
        for i, image, action in zip(
            batch["index"].tolist(), batch[CAM], batch["action"], strict=True
        ):
            out[i] = (image, action)
        if len(out) >= 200:
            break
    return out


def test_augment_depends_on_the_sample_alone(h264: str, tmp_path) -> None:
    want = samples(h264, shuffle=False)
    assert next(iter(want.values()))[0].shape == (3, 88, 90) and len(
        {x.numpy().tobytes() for x, _ in want.values()}
    ) == len(want)
    for how in (
        {"threads": 3, "batch_size": 31},
        {"shuffle": "pool"},
        {"shuffle": False, "cache": robocache.Cache("ram", format="yuv")},
        {"shuffle": False, "cache": robocache.Cache("ram", format="rgb")},
        {"shuffle": False, "cache": robocache.Cache(str(tmp_path / "c"), format="rgb")},
        {"shuffle": False, "cache": robocache.Cache(str(tmp_path / "c"), format="rgb")},
        {"shuffle": False, "rank": 1, "world_size": 2},
        {"images": robocache.Images(dtype="float32")},
    ):
        got = samples(h264, **how)
        both = got.keys() & want.keys()
        assert len(both) > 20
        for i in both:
            image = want[i][0] if got[i][0].dtype == torch.uint8 else want[i][0].float() / 255
            assert torch.equal(got[i][0], image) and torch.equal(got[i][1], want[i][1]), (how, i)
    again = samples(h264, 1, shuffle=False)
    assert all(not torch.equal(again[i][0], want[i][0]) for i in want)
    # A resumed run continues with the same random draws.
    config: dict = {
        "batch_size": 8,
        "keys": [CAM, "action"],
        "seed": 5,
        "augment": robocache.Augment(noise={"std": 0.1}),
    }
    loader = robocache.Loader(h264, **config)
    it = iter(loader)
    next(it)
    state, second = loader.state_dict(), next(it)
    other = robocache.Loader(h264, **config)
    other.load_state_dict(state)
    assert torch.equal(next(iter(other))[CAM], second[CAM])


def test_augment_flips_with_the_action(h264: str) -> None:
    plain = samples(h264, shuffle=False, augment=None)
    flipped = samples(
        h264,
        shuffle=False,
        augment=robocache.Augment(
            hflip={"p": 1, "negate": {"action": [0, 2]}, "swap": {"action": [[4, 5]]}}
        ),
    )
    for i, (image, action) in plain.items():
        want = action.clone()
        want[[4, 5]] = want[[5, 4]]
        want[[0, 2]] *= -1
        assert torch.equal(flipped[i][0], image.flip(-1)) and torch.equal(flipped[i][1], want)
    half = samples(
        h264, shuffle=False, augment=robocache.Augment(hflip={"p": 0.5, "keep": ["action"]})
    )
    turned = sum(torch.equal(half[i][0], plain[i][0].flip(-1)) for i in plain)
    assert (
        turned + sum(torch.equal(half[i][0], plain[i][0]) for i in plain) == len(plain)
        and 0.3 < turned / len(plain) < 0.7
    )


def test_augment_misuse(h264: str) -> None:
    for augment, match in (
        ({"hflip": {"p": 0.5}}, "observation.state"),
        ({"hflip": {"p": 2, "keep": ["action", "observation.state"]}}, "probability"),
        ({"hflp": {"p": 0.5}}, "hflip"),
        ({"random_crop": {"size": (1000, 10)}}, "240"),
        ({"color_jitter": {"hue": 0.7}}, "hue"),
        ({"color_jitter": {"hue": float("nan")}}, "finite"),
        ({"hflip": "left"}, "object"),
        ({"noise": {"std": {"actoin": 0.1}}}, "action"),
    ):
        with pytest.raises(robocache.Misuse, match=match):
            robocache.Loader(
                h264,
                keys=[CAM, "action", "observation.state"],
                augment=robocache.Augment(**augment),
            )
    with pytest.raises(robocache.Unsupported, match="Loader"):
        robocache.MapDataset(h264, augment=robocache.Augment(hflip={"p": 0.5}))
