"""Messages for keywords and habits of other loaders."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import numpy as np
import pytest
from conftest import cli, dataset_path

import robocache


@pytest.fixture(scope="module")
def uri() -> str:
    return dataset_path("g1_h264_v30")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("num_workers", "threads="),
        ("transform", "image_size="),
        ("image_transforms", "LeRobotDataset"),
        ("collate_fn", "collated"),
        ("chunk_size", "delta_timestamps="),
        ("n_obs_steps", "delta_timestamps="),
        ("horizon", "delta_timestamps="),
        ("sampler", "shuffle="),
        ("persistent_workers", "leave it out"),
        ("prefetch_factor", "prefetch="),
        ("worker_init_fn", "no worker processes"),
        ("timeout", "deadline_s="),
        ("generator", "seed="),
        ("pin_memory_device", "pin_memory="),
        ("bacth_size", "'batch_size'"),
        ("zzzz", "help(Loader)"),
        ("image_dtype", "images=robocache.Images(dtype=…)"),
        ("pool_sise", "order=robocache.Order(pool_size=…)"),
        ("delta_indices", "windows=robocache.Windows(rows=…)"),
        ("rows_hz", "open=robocache.Open(rows_hz=…)"),
        ("imagse", "'images'"),
    ],
)
def test_unknown_keywords(uri: str, name: str, words: str) -> None:
    """The message translates a keyword of another loader, or lists at most three similar names."""
    with pytest.raises(robocache.Misuse) as e:
        robocache.Loader(uri, **{name: 1})
    assert name in str(e.value) and words in e.value.hint
    assert e.value.hint.count("'") <= 6 and len(e.value.hint) < 250


def test_keywords_of_the_others(uri: str) -> None:
    for make, name, words in (
        (robocache.open, "num_workers", "threads="),
        (robocache.MapDataset, "batch_size", "batch_size= is a keyword of robocache.Loader"),
        (robocache.MapDataset, "drop_last", "robocache.Loader"),
        (robocache.MapDataset, "mixture", "robocache.Loader"),
        (robocache.Mix, "shuffle", "robocache.Loader"),
        (robocache.Loader, "weight", "robocache.Mix"),
        (robocache.LeRobotDataset, "num_workers", "threads="),
    ):
        with pytest.raises(robocache.Misuse) as e:
            make(uri, **{name: 1})
        assert words in e.value.hint, name


def test_groups(uri: str) -> None:
    """Rejected: a wrong kind of group, an unknown field, a repeated option, an unused option."""
    for make, words in (
        (
            lambda: robocache.Loader(uri, images=robocache.Order()),
            "a robocache.Order is for order=",
        ),
        (
            lambda: robocache.Loader(uri, images={"dtype": "uint8"}),
            "images=robocache.Images(dtype=…)",
        ),
        (
            lambda: robocache.Loader(uri, images="float32"),
            "images='float32': expected a robocache.Images",
        ),
        (lambda: robocache.Images(dtpe="float32"), "did you mean 'dtype'?"),
        (lambda: robocache.Cache(zzz=1), "known: where, budget, format"),
        (
            lambda: robocache.Loader(uri, image_size=(4, 4), images=robocache.Images(size=(4, 4))),
            "expected one of them",
        ),
        (
            lambda: robocache.Loader(uri, images=robocache.Images(dtype="int8")),
            "Images.dtype='int8'",
        ),
        (
            lambda: robocache.MapDataset(uri, order=robocache.Order(pool_size=1)),
            "Order.pool_size is not for robocache.MapDataset",
        ),
        (
            lambda: robocache.Mix(uri, windows=robocache.Windows(rows={})),
            "Windows.rows is not for robocache.Mix",
        ),
        (
            lambda: robocache.LeRobotDataset(uri, images=robocache.Images(dtype="uint8")),
            "Images.dtype is not for",
        ),
        (
            lambda: robocache.Loader(uri, statistics=robocache.Statistics(compute=True, values={})),
            "one of them",
        ),
    ):
        with pytest.raises(robocache.Misuse) as e:
            make()
        assert words in str(e.value), words
    loader = robocache.Loader(
        uri, batch_size=2, images=robocache.Images(size=(24, 32), dtype="float32"), cache=1 << 20
    )
    batch = next(iter(loader))
    key = next(k for k in batch if k.startswith("observation.images") and not k.endswith("_is_pad"))
    assert tuple(batch[key].shape) == (2, 3, 24, 32) and "float32" in str(batch[key].dtype)
    assert loader._config["cache"] == "ram" and loader._config["cache_budget"] == 1 << 20


def test_wrong_groups(uri: str) -> None:
    """Rejected: a group for another keyword, a group for a plain keyword, and positional fields."""
    cuda = robocache.Device
    for make, words in (
        (lambda: robocache.Loader(uri, cache=cuda("cpu")), "a robocache.Device is for device="),
        (
            lambda: robocache.Loader(uri, device=robocache.Cache("ram")),
            "a robocache.Cache is for cache=",
        ),
        (
            lambda: robocache.Loader(uri, image_size=robocache.Images()),
            "a robocache.Images is for images=",
        ),
        (lambda: robocache.Loader(uri, device=None), "device=None: expected 'cpu', 'cuda'"),
        (lambda: robocache.Loader(uri, device=1.5), "device=1.5: expected 'cpu', 'cuda'"),
        (
            lambda: robocache.Loader(uri, device=cuda(None)),
            "Device.name=None: expected 'cpu', 'cuda'",
        ),
        (
            lambda: robocache.Images((3, 4)),
            "robocache.Images(size=…, dtype=…, fit=…, filter=…, ",
        ),
        (lambda: robocache.Order("1GiB"), "robocache.Order(pool_size=…, "),
        (lambda: robocache.Cache("ram", "1GiB"), "robocache.Cache('ram', budget=…, format=…)"),
        (lambda: robocache.Cache("ram", where="x"), "expected one of them"),
        (lambda: robocache.Images(image_resize="crop"), "did you mean 'fit'?"),
        (lambda: robocache.Cache("ram", cache_budget=1), "did you mean 'budget'?"),
        (lambda: robocache.Images(pool_size=1), "order=robocache.Order(pool_size=…)"),
        (lambda: robocache.Windows(delta_indces={}), "did you mean 'rows'?"),
    ):
        with pytest.raises(robocache.Misuse) as e:
            make()
        assert words in str(e.value), words
        assert "overload" not in str(e.value) and "\n" not in str(e.value)


def test_fields_of_several_groups(uri: str) -> None:
    """For a name that several groups have, the message lists each of them, with Open first."""
    for name, hint in (
        ("format", "open=robocache.Open(format=…) or cache=robocache.Cache(…, format=…)"),
        ("dtype", "windows=robocache.Windows(dtype=…) or images=robocache.Images(dtype=…)"),
    ):
        with pytest.raises(robocache.Misuse) as e:
            robocache.Loader(uri, **{name: "x"})
        assert e.value.hint == hint
    with pytest.raises(robocache.Misuse) as e:
        robocache.LeRobotDataset(uri, format="x")
    assert e.value.hint == "open=robocache.Open(format=…)"


def test_sizes_of_caches(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text that is a number of bytes is not a folder. NumPy integers are bytes of RAM."""
    monkeypatch.chdir(tmp_path)
    for cache in ("8GiB", "1e9", "512 mb", robocache.Cache("8GiB")):
        with pytest.raises(robocache.Misuse) as e:
            robocache.Loader(uri, cache=cache)
        text = cache if isinstance(cache, str) else cache.where
        assert f'robocache.Cache("ram", budget="{text}")' in e.value.hint
        assert f'"./{text}"' in e.value.hint
    assert not list(tmp_path.iterdir())
    loader = robocache.Loader(uri, keys=["action"], cache=np.int64(1 << 20))
    assert loader._config["cache"] == "ram" and loader._config["cache_budget"] == 1 << 20
    for folder in ("./8GiB", Path("9GiB"), "cache8"):
        loader = robocache.Loader(uri, keys=["action"], cache=folder)
        assert loader._config["cache"] == str(tmp_path / folder)


def test_options_without_effect(uri: str) -> None:
    """Options without effect are rejected, and have an effect in other calls."""
    values = robocache.open(uri).stats
    for make, words in (
        (
            lambda: robocache.Loader(uri, device=robocache.Device(memory_budget="1GiB")),
            "Device.memory_budget='1GiB' with device='cpu'",
        ),
        (
            lambda: robocache.Loader(uri, statistics=robocache.Statistics(compute=True)),
            "Statistics.compute without normalize=",
        ),
        (
            lambda: robocache.Loader(uri, statistics=robocache.Statistics(values=values)),
            "Statistics.values without normalize=",
        ),
        (
            lambda: robocache.MapDataset(uri, statistics=robocache.Statistics(compute=True)),
            "Statistics.compute without normalize=",
        ),
        (
            lambda: robocache.Loader([uri, uri], statistics=robocache.Statistics(compute=True)),
            "Statistics.compute without normalize=",
        ),
        (
            lambda: robocache.Loader(
                [
                    robocache.Mix(uri, statistics=robocache.Statistics(values=values)),
                    robocache.Mix(uri, normalize="mean_std"),
                ]
            ),
            "Statistics.values without normalize=",
        ),
    ):
        with pytest.raises(robocache.Misuse) as e:
            make()
        assert words in str(e.value), words
    mix = robocache.Mix(uri, keys=["action"], statistics=robocache.Statistics(values=values))
    assert robocache.Loader([mix], normalize="mean_std").normalizer
    mix = robocache.Mix(uri, keys=["action"], normalize="mean_std")
    assert robocache.Loader([mix], statistics=robocache.Statistics(compute=True)).normalizer


def test_statistics_over_a_map_dataset(uri: str) -> None:
    """The Loader's statistics replace those of its MapDataset, also with compute=False."""
    computed = robocache.Statistics(compute=True)
    items = robocache.MapDataset(
        uri, keys=["action"], episodes=[0], normalize="mean_std", statistics=computed
    )
    plain = {"keys": ["action"], "episodes": [0], "normalize": "mean_std"}

    def first(loader: robocache.Loader) -> list[float]:
        return next(iter(loader))["action"][0].tolist()

    own = first(robocache.Loader(uri, shuffle=False, **plain))
    undone = robocache.Loader(items, shuffle=False, statistics=robocache.Statistics(compute=False))
    assert first(undone) == own
    assert first(robocache.Loader(items, shuffle=False)) != own
    values = robocache.Statistics(values=robocache.open(uri).stats)
    assert first(robocache.Loader(items, shuffle=False, statistics=values)) == own


def test_numbers_of_devices(uri: str) -> None:
    """A number is a CUDA device if torch reports CUDA."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("test_cuda.py opens devices")
    if torch.device(0).type != "cuda":
        pytest.skip("torch counts devices of another kind")
    for device in (0, np.int64(0), torch.device("cuda", 0)):
        with pytest.raises(
            robocache.Unsupported, match="device='cuda:0': torch finds no CUDA device"
        ):
            robocache.Loader(
                uri, device=robocache.Device(device, decode="gpu", memory_budget="1GiB")
            )
    with pytest.raises(robocache.Misuse, match="device='gpu': torch knows no such device"):
        robocache.Loader(uri, device="gpu")
    assert robocache.Loader(uri, keys=["action"], device=torch.device("cpu")).device == "cpu"


def test_signatures_name_the_groups() -> None:
    names = list(inspect.signature(robocache.Loader.__init__).parameters)
    assert names[:3] == ["self", "source", "batch_size"] and "groups" not in names
    assert set(robocache.options.GROUPS) <= set(names)
    for name in names[1:]:
        assert f"        {name}: " in (robocache.Loader.__doc__ or ""), name
    for cls in robocache.options.GROUPS.values():
        for field in dataclasses.fields(cls):
            assert f"        {field.name}: " in (cls.__doc__ or ""), f"{cls.__name__}.{field.name}"


def dataset_of_mix(uri: str) -> robocache.Dataset:
    """Opens a dataset through a Mix. An error of opening is raised when the Mix is used."""
    return robocache.Mix(uri).dataset


@pytest.mark.parametrize(
    "make", [robocache.open, robocache.Loader, robocache.MapDataset, dataset_of_mix]
)
def test_names_of_the_hub(  # type: ignore[no-untyped-def]
    make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(robocache.NotFound) as e:
        make("lerobot/pusht")
    assert "hf download lerobot/pusht --repo-type dataset" in e.value.hint
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with pytest.raises(robocache.NotFound) as e:
        make("hf://datasets/lerobot/pusht")
    assert "hf download lerobot/pusht --repo-type dataset" in e.value.hint
    (tmp_path / "lerobot").mkdir()
    with pytest.raises(robocache.NotFound) as e:
        make("lerobot/pusht")
    assert "hf download" not in e.value.hint


def test_no_batch_at_all(uri: str) -> None:
    n = len(robocache.MapDataset(uri, keys=["action"]))
    with pytest.raises(
        robocache.Misuse, match=f"an epoch of {n} samples holds no batch: batch_size={n + 1}"
    ):
        robocache.Loader(uri, batch_size=n + 1, drop_last=True)
    with pytest.raises(robocache.Misuse, match=f"world_size=2, {n + 1} samples a step"):
        robocache.Loader(uri, batch_size=(n + 1) // 2, drop_last=True, rank=0, world_size=2)
    assert len(robocache.Loader(uri, batch_size=n + 1)) == 1
    assert len(robocache.Loader(uri, batch_size=n, drop_last=True)) == 1


def test_batches_of_a_data_loader(uri: str) -> None:
    data = pytest.importorskip("torch.utils.data", reason="torch is not installed")
    loader = robocache.Loader(uri, batch_size=4, keys=["action"])
    assert len(next(iter(data.DataLoader(loader, batch_size=None)))["action"]) == 4


def test_unknown_keys(uri: str, tmp_path: Path) -> None:
    for args in (
        ("stats", uri, "--keys", "acton"),
        ("stats", uri, "--keys", "action,acton"),
        ("convert", uri, str(tmp_path / "out"), "--keys", "acton"),
    ):
        done = cli(*args)
        assert (
            done.returncode == 2 and "acton" in done.stderr and "nearest: action" in done.stderr
        ), done.stderr
    assert not (tmp_path / "out").exists()
    for call in (
        lambda: robocache.open(uri).compute_stats(["acton"]),
        lambda: robocache.stats(uri, keys=["acton"]),
        lambda: robocache.Loader(uri, keys=["acton"]),
    ):
        with pytest.raises(robocache.Misuse, match="acton") as e:
            call()
        assert "action" in e.value.hint
