"""The networks of `robocache-bench train` have the published parameter counts and learn."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "runners"))
from robocache_bench import train_models as m  # noqa: E402

CAMERA = ("front",)


@pytest.mark.parametrize(
    "name, state, action, cameras, want",
    [
        ("transformer", 526, 7, (), 101_316_615),
        ("diffusion-lowdim", 14, 7, (), 65_620_231),
        ("diffusion-lowdim", 15, 7, (), 65_620_231 + 28_672),
        ("diffusion-lowdim", 14, 8, (), 65_620_231 + 1_793),
        ("diffusion", 14, 7, CAMERA, 252_217_991 + 11_197_088),
        ("diffusion", 26, 26, CAMERA, 252_974_234 + 11_197_088),
        ("diffusion", 14, 7, ("a", "b"), 252_217_991 + 3_670_016 + 2 * 11_197_088),
        ("resnet18", 26, 26, CAMERA, 11_559_184),
        ("act", 14, 14, CAMERA, 51_613_582),
    ],
)
def test_parameters(name, state, action, cameras, want):
    with torch.device("meta"):
        assert m.count(m.make(name, state, action, cameras)) == want


def test_small_transformer():
    with torch.device("meta"):
        assert m.count(m.Transformer(526, 7, 512, 8, 4)) == 12_882_951


@pytest.mark.parametrize("name", m.SPECS)
def test_tiny_learns(name):
    """On one batch the loss falls, and the same random draw gives the same loss."""
    torch.manual_seed(0)
    seen, ahead = {
        "transformer": (20, 20),
        "diffusion": (2, 16),
        "diffusion-lowdim": (2, 16),
        "resnet18": (1, 8),
        "act": (1, 16),
    }[name]
    cameras = CAMERA if name in ("diffusion", "resnet18", "act") else ()
    net = m.make(name, 5, 3, cameras, tiny=True)
    b = dict(
        state=torch.rand(2, seen, 5),
        action=torch.rand(2, ahead, 3),
        action_is_pad=torch.zeros(2, ahead, dtype=torch.bool),
    )
    if cameras:
        b["frames"] = {"front": torch.rand(2, seen, 3, 96, 96)}
    opt = torch.optim.AdamW(net.parameters(), 1e-3)

    def step():
        torch.manual_seed(1)
        loss = net(b, torch.Generator().manual_seed(7))
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    losses = [step() for _ in range(6)]
    assert losses[-1] < losses[0]
