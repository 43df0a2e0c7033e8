"""Images of the loader against the libraries whose filters they use, to the bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import live_events
from conftest import data_root, dataset_path

import robocache

SIZES = {
    "observation.large": (480, 640),
    "observation.crop": (230, 230),
    "observation.odd": (97, 61),
    "observation.half": (448, 448),
}
ROWS = 2


def write_array(path: Path, a: np.ndarray) -> None:
    """Writes an uncompressed Zarr array of one chunk."""
    path.mkdir(parents=True)
    (path / ".zarray").write_text(
        json.dumps(
            {
                "zarr_format": 2,
                "shape": a.shape,
                "chunks": a.shape,
                "dtype": a.dtype.str,
                "compressor": None,
                "filters": None,
                "order": "C",
                "fill_value": 0,
            }
        )
    )
    (path / ".".join("0" * a.ndim)).write_bytes(a.tobytes())


def write_set(root: Path, images: dict[str, np.ndarray]) -> str:
    """Writes an episode of images, by key. Returns its place."""
    rows = len(next(iter(images.values())))
    for key, frames in images.items():
        write_array(root / "data" / key.partition(".")[2], frames)
    write_array(root / "data" / "action", np.zeros((rows, 2), np.float32))
    write_array(root / "meta" / "episode_ends", np.array([rows], np.int64))
    for folder in (root, root / "data", root / "meta"):
        (folder / ".zgroup").write_text('{"zarr_format": 2}')
    return str(root)


def photo(rng: np.random.Generator, h: int, w: int) -> np.ndarray:
    """Returns smooth waves with noise and full-scale edges."""
    y, x = np.mgrid[0:h, 0:w]
    waves = 128 + 80 * np.sin(x / 17) + 40 * np.cos(y / 9 + x / 31)
    image = np.stack([waves, waves[::-1], 255 - waves], -1) + rng.normal(0, 3, (h, w, 3))
    image[h // 3 : h // 2, w // 4 : w // 3] = rng.integers(0, 2, 3) * 255
    image[: h // 5] = rng.integers(0, 256, (h // 5, w, 3))
    return np.clip(image, 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, np.ndarray]]:
    """Returns a data set of still images, and its images by key."""
    rng = np.random.default_rng(16)
    images = {k: np.stack([photo(rng, *s) for _ in range(ROWS)]) for k, s in SIZES.items()}
    return write_set(tmp_path_factory.mktemp("stills") / "images.zarr", images), images


def deliver(uri: str, keys: list[str], **how: object) -> dict[str, np.ndarray]:
    """Returns the only batch, as arrays."""
    loader = robocache.Loader(
        uri, batch_size=8, shuffle=False, keys=keys, images=robocache.Images(**how)
    )
    return {k: np.asarray(v) for k, v in next(iter(loader)).items() if k in keys}


def scale(name: str, image: np.ndarray, h: int, w: int) -> np.ndarray:
    """Returns an image scaled by the library of a filter."""
    library, _, kind = name.partition("-")
    if library == "cv2":
        cv2 = pytest.importorskip("cv2")
        how = {"area": cv2.INTER_AREA, "linear": cv2.INTER_LINEAR}[kind]
        return cv2.resize(image, (w, h), interpolation=how)
    if library == "torch":
        torch = pytest.importorskip("torch")
        planes = torch.from_numpy(image.transpose(2, 0, 1).copy())[None]
        out = torch.nn.functional.interpolate(planes, (h, w), mode="bilinear", antialias=True)
        return out[0].numpy().transpose(1, 2, 0)
    pil = pytest.importorskip("PIL.Image")
    how = {"bilinear": pil.BILINEAR, "lanczos": pil.LANCZOS, "": pil.NEAREST}[kind]
    return np.asarray(pil.fromarray(image).resize((w, h), how))


@pytest.mark.parametrize(
    "name", ["cv2-area", "cv2-linear", "pil-bilinear", "pil-lanczos", "torch-antialias", "nearest"]
)
def test_filters_equal_their_library(source: tuple, name: str) -> None:
    uri, images = source
    for h, w in [(224, 224), (256, 256), (113, 201), (240, 320), (31, 700)]:
        got = deliver(uri, [*images], size=(h, w), filter=name, layout="hwc")
        for key, frames in images.items():
            want = np.stack([scale(name, x, h, w) for x in frames])
            assert got[key].shape == want.shape and got[key].dtype == np.uint8
            differ = np.count_nonzero(got[key] != want)
            assert differ == 0, f"{name}: {key} to {(h, w)}: {differ} bytes differ"


CLIENTS = {
    "gr00t": (
        "image_raw",
        "image_eval",
        {
            "transform": [
                {"letterbox": True},
                {"smallest_side": 256},
                {"center_crop": 230 / 256},
                {"smallest_side": 256},
            ]
        },
    ),
    "openpi": (
        "inputs/image",
        "resized/image",
        {"size": (224, 224), "fit": "letterbox", "filter": "pil-bilinear"},
    ),
    "openvla": ("image_source", "image_224", {"size": (224, 224), "filter": "tf-lanczos3"}),
}


@pytest.mark.parametrize("client", [*CLIENTS])
def test_images_of_clients(client: str, tmp_path: Path) -> None:
    """Images that the clients' own code gave: at most one level, equal in 99.9 % of the bytes."""
    path = data_root() / "clients" / f"{client}.npz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    before, after, how = CLIENTS[client]
    with np.load(path, allow_pickle=False) as samples:
        frames, want = samples[before], samples[after]
    uri = write_set(tmp_path / "client.zarr", {"observation.image": frames})
    got = deliver(uri, ["observation.image"], layout="hwc", **how)["observation.image"]
    off = np.abs(got.astype(int) - want)
    assert off.max() <= (client == "openvla") and (off > 0).mean() < 1e-3, (off > 0).mean()


def pad_square(x: np.ndarray) -> np.ndarray:
    h, w = x.shape[:2]
    out = np.zeros((max(h, w), max(h, w), 3), np.uint8)
    out[(len(out) - h) // 2 :][:h, (len(out) - w) // 2 :][:, :w] = x
    return out


def center(x: np.ndarray, h: int, w: int) -> np.ndarray:
    top, left = (x.shape[0] - h) // 2, (x.shape[1] - w) // 2
    return x[top : top + h, left : left + w]


def test_fits_and_steps(source: tuple) -> None:
    uri, images = source
    cv2 = pytest.importorskip("cv2")
    large, odd = "observation.large", "observation.odd"
    x = images[large][0]
    area = lambda v, h, w: cv2.resize(v, (w, h), interpolation=cv2.INTER_AREA)  # noqa: E731
    one = lambda key=large, **how: deliver(uri, [key], layout="hwc", **how)[key][0]  # noqa: E731
    cases = [
        (one(size=(90, 100), fit="letterbox", filter="cv2-area"), "box"),
        (one(size=(90, 100), fit="crop", filter="cv2-area"), center(area(x, 90, 120), 90, 100)),
        (one(size=120, fit="smallest_side", filter="cv2-area"), area(x, 120, 160)),
        (one(transform=[{"letterbox": True}]), pad_square(x)),
        (one(transform=[{"center_crop": 0.9}]), center(x, 432, 576)),
        (one(transform=[{"center_crop": (100, 50)}]), center(x, 100, 50)),
        (
            one(transform=[{"letterbox": True}, {"smallest_side": 100}, {"center_crop": 0.333}]),
            center(area(pad_square(x), 100, 100), 33, 33),
        ),
        (
            one(odd, transform=[{"resize": (70, 80), "fit": "letterbox", "filter": "nearest"}]),
            np.pad(scale("nearest", images[odd][0], 70, 44), ((0, 0), (18, 18), (0, 0))),
        ),
    ]
    for i, (got, want) in enumerate(cases):
        if isinstance(want, str):
            want = np.pad(area(x, 75, 100), ((7, 8), (0, 0), (0, 0)))
        assert np.array_equal(got, want), f"case {i}: {got.shape}, want {want.shape}"
    both = deliver(uri, [large], transform=[{"center_crop": 0.5}])[large]
    assert np.array_equal(both[0].transpose(1, 2, 0), center(x, 240, 320))
    # The same options in a MapDataset, as floats, and by a filter of the whole transform.
    options = robocache.Images(size=(90, 100), filter="pil-lanczos", layout="hwc", dtype="float32")
    item = robocache.MapDataset(uri, keys=[large], images=options)[0][large]
    want = scale("pil-lanczos", x, 90, 100).astype(np.float32) / np.float32(255)
    assert np.array_equal(np.asarray(item), want)


def test_random_steps_share_one_draw(source: tuple, tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    x = source[1]["observation.crop"]
    uri = write_set(tmp_path / "two.zarr", {"observation.a": x, "observation.b": x})
    keys = ["observation.a", "observation.b"]
    steps = [{"random_crop": 0.8}, {"smallest_side": 230}]
    seen = set()
    for seed in range(3):
        loader = robocache.Loader(
            uri,
            batch_size=ROWS,
            shuffle=False,
            seed=seed,
            keys=keys,
            images=robocache.Images(transform=steps, layout="hwc"),
        )
        batch = next(iter(loader))
        a, b = (np.asarray(batch[k]) for k in keys)
        assert np.array_equal(a, b), "two cameras have different draws"
        for i in range(ROWS):
            found = [
                (top, left)
                for top in range(47)
                for left in range(47)
                if np.array_equal(a[i, 0, 0], x[i, top, left])  # a quick test
                and np.array_equal(
                    a[i], scale("cv2-area", x[i, top : top + 184, left : left + 184], 230, 230)
                )
            ]
            assert len(found) == 1, f"{len(found)} crops give the image"
            seen.add(found[0])
    assert len(seen) > 3
    with pytest.raises(robocache.Unsupported, match="center_crop"):
        robocache.MapDataset(uri, keys=keys, images=robocache.Images(transform=steps))
    # Rotations share a draw if that is asked for, and a turn by 180 degrees is exact.
    turn = robocache.Augment(rotation=[180, 180], shared=True)
    loader = robocache.Loader(uri, batch_size=ROWS, shuffle=False, keys=keys, augment=turn)
    a = np.asarray(next(iter(loader))[keys[0]])
    assert np.array_equal(a.transpose(0, 2, 3, 1), x[:, ::-1, ::-1])


def test_normalizer_of_channels_last(source: tuple) -> None:
    key = "observation.odd"
    norm = {key: {"mode": "mean_std", "mean": [0.1, 0.2, 0.3], "std": [1.0, 2.0, 4.0]}}
    loader, plain = (
        robocache.Loader(
            source[0],
            batch_size=ROWS,
            shuffle=False,
            keys=[key],
            images=robocache.Images(layout="hwc", dtype="float32"),
            normalize=n,
        )
        for n in (norm, None)
    )
    got, x = (np.asarray(next(iter(v))[key]) for v in (loader, plain))
    want = (x - np.float32([0.1, 0.2, 0.3])) / (np.float32([1, 2, 4]) + np.float32(1e-8))
    assert np.array_equal(got, want)
    assert np.array_equal(loader.normalizer({key: x})[key], got)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"filter": "cv2-area"}, "image_size"),
        ({"size": 10, "fit": "smallest_side"}, "filter"),
        ({"size": 10}, "smallest_side"),
        ({"size": (10, 10), "filter": "cv2-cubic"}, "filter"),
        ({"size": (10, 10), "transform": [{"letterbox": True}]}, "transform"),
        ({"transform": [{"letterbox": True, "smallest_side": 3}]}, "one change per step"),
        ({"transform": [{"squash": 3}]}, "squash"),
        ({"transform": [{"center_crop": 1.5}]}, "center_crop"),
        ({"transform": [{"center_crop": (1000, 1000)}]}, "at most the image"),
        ({"transform": [{"random_crop": (1000, 1000)}]}, "at most the image"),
        ({"transform": [{"rotation": 200}]}, "rotation"),
        ({"transform": [{"rotation": 3}, {"random_crop": 0.5}]}, "Order the steps"),
        ({"transform": [{"random_crop": 0.5}, {"letterbox": True}]}, "Order the steps"),
        ({"layout": "cwh"}, "layout"),
    ],
)
def test_misuse(source: tuple, how: dict, words: str) -> None:
    with pytest.raises((robocache.Misuse, robocache.Unsupported), match=words):
        robocache.Loader(source[0], keys=["observation.large"], images=robocache.Images(**how))


def test_a_contract_crops_the_center() -> None:
    """A robot sees what a loader with the centre crop delivers, in the layout of training."""
    path = dataset_path("mcap_robot") + "/recording_zstd.mcap"
    camera = "camera.color.image_raw.compressed"

    def loader(*steps: dict) -> robocache.Loader:
        images = robocache.Images(
            transform=[{"letterbox": True}, {"smallest_side": 128}, *steps], layout="hwc"
        )
        how = {"keys": [camera], "batch_size": 1, "shuffle": False, "images": images}
        return robocache.Loader(path, hz=30, align="causal", **how)

    back = {"smallest_side": 128}
    train = loader({"random_crop": 0.9}, back, {"rotation": 5}, {"color_jitter": {"hue": 0.1}})
    contract = train.contract()
    assert contract.outputs[camera].shape == (128, 128, 3)
    events = live_events.events_of(path, contract, {"clock": "log"})
    with robocache.Live(contract) as live:
        wanted = iter(loader({"center_crop": 0.9}, back))
        seen_all = [(b, dict(x)) for b, x in zip(wanted, live_events.ticks_of(live, events, 10))]
        assert len(seen_all) == 10
        for batch, seen in seen_all:
            assert np.array_equal(np.asarray(seen[camera]), np.asarray(batch[camera][0]))


@pytest.mark.parametrize("cache", ["none", "ram", "rgb", "yuv"])
def test_frames_of_video_in_caches(cache: str, tmp_path: Path) -> None:
    """Stored frames, pixels and planes give the pixels that the library makes of full frames."""
    path, key = dataset_path("g1_h264_v30"), "observation.images.cam_high"
    how = {"keys": [key], "episodes": [0], "batch_size": 8, "shuffle": False}
    full = np.asarray(next(iter(robocache.Loader(path, **how)))[key])
    want = [scale("cv2-area", x.transpose(1, 2, 0), 96, 128) for x in full]
    if cache == "ram":
        how["cache"] = "ram"
    elif cache != "none":
        how["cache"] = robocache.Cache(str(tmp_path / "cache"), format=cache)
    images = robocache.Images(size=(96, 128), filter="cv2-area")
    with robocache.Loader(path, images=images, **how) as loader:
        for _ in range(2):
            got = np.asarray(next(iter(loader))[key])
            assert np.array_equal(got.transpose(0, 2, 3, 1), np.stack(want))
