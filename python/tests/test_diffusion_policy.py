"""robocache.diffusion_policy, against samples of diffusion_policy's own code."""

from __future__ import annotations

import pickle
import types
from typing import Any

import numpy as np
import pytest
from conftest import dataset_path

import robocache
from robocache import _memory

torch = pytest.importorskip("torch", reason="torch is not installed")
from torch.utils.data import DataLoader  # noqa: E402

from robocache import diffusion_policy as client  # noqa: E402

CASES = ["16_1_7", "16_0_0", "40_3_5", "8_7_7"]  # horizon, pad_before, pad_after


@pytest.fixture(scope="module")
def theirs() -> Any:
    with np.load(dataset_path("clients/diffusion_policy.npz"), allow_pickle=False) as z:
        return dict(z)


@pytest.fixture(scope="module")
def buffer() -> robocache.Dataset:
    return robocache.open(dataset_path("diffusion_policy_zarr/replay_buffer.zarr"))


def sizes(case: str) -> tuple[int, ...]:
    return tuple(map(int, case.split("_")))


def same_bits(got: Any, want: np.ndarray) -> bool:
    got = np.asarray(got)
    return got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes()


@pytest.mark.parametrize("case", CASES)
def test_samples_are_those_of_diffusion_policy(
    theirs: dict[str, Any], buffer: robocache.Dataset, case: str
) -> None:
    data = client.ImageDataset(buffer, *sizes(case))
    assert len(data) == len(theirs[f"{case}/index"])
    assert same_bits(data.indices, theirs[f"{case}/index"])
    items = data.__getitems__(theirs[f"{case}/samples"].tolist())
    got = {k: torch.stack([i["obs"][k] for i in items]) for k in ("agent_pos",)}
    got["action"] = torch.stack([i["action"] for i in items])
    assert all(same_bits(v, theirs[f"{case}/{k}"]) for k, v in got.items())
    part = client.ImageDataset(buffer, *sizes(case), val_ratio=0.34)
    split = f"{case}/{{}}val_ratio_0.34_{{}}"
    assert same_bits(part.train_mask, theirs[split.format("train_mask_", "seed_42")])
    assert same_bits(part.indices[:, 1:], theirs[split.format("index_", "train")])
    rest = part.get_validation_dataset()
    assert same_bits(rest.indices[:, 1:], theirs[split.format("index_", "val")])


@pytest.mark.parametrize("mode", ("limits", "gaussian"))
def test_the_normalizer_is_that_of_diffusion_policy(
    theirs: dict[str, Any], buffer: robocache.Dataset, mode: str
) -> None:
    data = client.ImageDataset(buffer, 16, 1, 7)
    made = data.get_normalizer(mode)
    for key, field in made.items():
        values = {"scale": field.scale, "offset": field.offset}
        values.update((f"input_{k}", v) for k, v in field.input_stats.items())
        for name, value in values.items():
            assert same_bits(value, theirs[f"normalizer/{mode}/{key}/{name}"]), (key, name)
    raw = {k: torch.from_numpy(theirs[f"16_1_7/{k}"]) for k in ("agent_pos", "action")}
    out = made.normalize(raw)
    assert all(same_bits(v, theirs[f"16_1_7/{k}_normalized_{mode}"]) for k, v in out.items())
    back = made.unnormalize(out)
    assert all(torch.allclose(back[k], raw[k], atol=1e-5) for k in raw)


def test_constant_columns_are_only_shifted() -> None:
    rows = torch.tensor([[1.0, 5], [3, 5]])
    field = client.fit_field(rows, "limits", -1, 1, 1e-4)
    assert field.scale.tolist() == [1, 1] and field.offset.tolist() == [-2, -5]
    field = client.fit_field(rows, "gaussian", -1, 1, 1e-4)
    assert field.scale[1] == 1 and field.offset[1] == -5


def test_images(theirs: dict[str, Any], buffer: robocache.Dataset) -> None:
    """Images are float32; diffusion_policy has float64, which its normalizer casts to float32."""
    data = client.ImageDataset(buffer, 16, 1, 7)
    for (sample, step), want in zip(theirs["images_at"], theirs["images"]):
        assert same_bits(data[sample]["obs"]["image"][step], want.astype(np.float32))
    few = client.ImageDataset(buffer, 16, 1, 7, n_obs_steps=2)
    for i in (0, 40, len(few) - 1):
        for key, value in few[i]["obs"].items():
            assert torch.equal(value, data[i]["obs"][key][:2]), key
        assert torch.equal(few[i]["action"], data[i]["action"])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ("ImageDataset", "LowdimDataset"))
def test_the_loader_stacks_the_samples(buffer: robocache.Dataset, case: str, kind: str) -> None:
    obs = [("state", 0, 2), ("state", 5, 9)] if kind == "LowdimDataset" else None
    data = getattr(client, kind)(buffer, *sizes(case), obs=obs, n_obs_steps=2)
    loader = client.Loader(data, batch_size=8, shuffle=False, cache="ram", num_workers=4)
    want = list(DataLoader(data, batch_size=8))
    got = list(loader)
    assert len(got) == len(loader) == len(want)
    flat = lambda b: [b["action"], *(b["obs"].values() if obs is None else [b["obs"]])]  # noqa: E731
    for g, w in zip(got, want):
        assert list(g) == ["obs", "action"]
        assert all(torch.equal(x, y) for x, y in zip(flat(g), flat(w), strict=True))


def test_the_loader_shuffles_and_resumes(buffer: robocache.Dataset) -> None:
    data = client.ImageDataset(buffer, 16, 1, 7, val_ratio=0.34)
    make = lambda: client.Loader(data, batch_size=8, shuffle=True, seed=1)  # noqa: E731
    loader = make()
    it = iter(loader)
    next(it)
    state, rest = loader.state_dict(), [b["action"] for b in it]
    assert sorted(loader.order(0).tolist()) == list(range(len(data)))
    again = make()
    again.load_state_dict(state)
    got = [b["action"] for b in again.as_numpy()]
    assert all(np.array_equal(g, w) for g, w in zip(got, rest, strict=True))
    with pytest.raises(robocache.Misuse, match="no episodes"):
        client.Loader(client.ImageDataset(buffer, 16).get_validation_dataset())


def test_episodes_for_training(buffer: robocache.Dataset) -> None:
    """The episodes follow numpy.random.default_rng(seed), as in diffusion_policy."""
    most = client.ImageDataset(buffer, 8, max_train_episodes=2, seed=7)
    chosen = np.random.default_rng(7).choice(3, 2, replace=False)
    assert np.nonzero(most.train_mask)[0].tolist() == sorted(chosen.tolist())
    assert np.array_equal(most.get_validation_dataset().train_mask, ~most.train_mask)
    assert len(client.ImageDataset(buffer, 8).get_validation_dataset()) == 0
    half = client.ImageDataset(buffer, 8, val_ratio=0.9)
    assert half.train_mask.sum() == 1, "one episode stays for training"


def test_workers_and_copies(buffer: robocache.Dataset) -> None:
    data = client.ImageDataset(buffer, 8, 7, 7)
    want = list(DataLoader(data, batch_size=50))
    got = list(DataLoader(data, batch_size=50, num_workers=2))
    assert all(torch.equal(g["obs"]["image"], w["obs"]["image"]) for g, w in zip(got, want))
    copy = pickle.loads(pickle.dumps(data))
    assert torch.equal(copy[3]["action"], data[3]["action"])


def test_wrong_use(buffer: robocache.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(robocache.Misuse, match="no 'keypoint'") as e:
        client.LowdimDataset(buffer)
    assert "observation.state" in e.value.hint
    with pytest.raises(robocache.Misuse, match="horizon=0"):
        client.ImageDataset(buffer, 0)
    with pytest.raises(robocache.Misuse, match="mode='max'"):
        client.ImageDataset(buffer, 4).get_normalizer("max")
    old = types.SimpleNamespace(__version__="1.12.1+cu102")
    monkeypatch.setattr(_memory, "torch_module", lambda: old)
    with pytest.raises(robocache.Unsupported, match=r"torch is 1\.12\.1") as e:
        client.ImageDataset(buffer, 4)
    assert "torch 2.1" in e.value.hint


def test_bool_crosses_to_an_old_torch_as_uint8(buffer: robocache.Dataset) -> None:
    """torch before 2.3 takes no bool through DLPack."""

    class Old:
        __version__ = "2.1.2"
        bool = torch.bool
        _C = types.SimpleNamespace()

    codes = []

    def convert(capsule: Any) -> Any:
        tensor = torch._C._from_dlpack(capsule)
        codes.append(tensor.dtype)
        return tensor

    Old._C._from_dlpack = staticmethod(convert)
    rows = robocache.Windows(rows={"action": [-1, 0]})
    ds = robocache.MapDataset(buffer, keys=["action"], windows=rows)
    answer = ds._map.call("robocache_map_items", {"indices": [0, 1]})
    got = _memory.batch_values(answer, Old)
    assert codes == [torch.float32, torch.uint8]
    assert got["action_is_pad"].dtype == torch.bool
    assert got["action_is_pad"].tolist() == [[True, False], [False, False]]


@pytest.mark.slow
def test_with_the_package_of_diffusion_policy(buffer: robocache.Dataset, script: Any) -> None:
    """Datasets inherit from its classes, and normalizers are its own."""
    done = script(
        """
        import sys, types
        names = ["", ".dataset", ".dataset.base_dataset", ".model", ".model.common",
                 ".model.common.normalizer"]
        for name in names:
            module = sys.modules["diffusion_policy" + name] = types.ModuleType(name or "root")
            module.__path__ = []
        class BaseImageDataset: pass
        class BaseLowdimDataset: pass
        class LinearNormalizer:
            def load_state_dict(self, state): self.names = sorted(state)
        base = sys.modules["diffusion_policy.dataset.base_dataset"]
        base.BaseImageDataset, base.BaseLowdimDataset = BaseImageDataset, BaseLowdimDataset
        sys.modules["diffusion_policy.model.common.normalizer"].LinearNormalizer = LinearNormalizer
        from robocache.diffusion_policy import ImageDataset, LowdimDataset
        data = ImageDataset(sys.argv[1], 16, 1, 7)
        assert isinstance(data, BaseImageDataset) and issubclass(LowdimDataset, BaseLowdimDataset)
        names = data.get_normalizer().names
        assert "params_dict.action.input_stats.max" in names and "params_dict.image.scale" in names
        """,
        buffer.uri,
    )
    assert done.returncode == 0, done.stderr
