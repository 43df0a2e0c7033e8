"""Measure the speed of an epoch, train a small policy, save it, and run it as a robot would.

    python examples/train_policy.py PATH [--steps 300] [--save policy.pt] [--metrics :9400]

The policy reads one camera image and the state, and predicts the next 8 actions.
"""

import argparse
import itertools
import os
import tempfile
import time

import torch
from torch import nn

import robocache

HORIZON = 8


class Policy(nn.Module):
    """A small CNN over the image, joined with the state. The output is HORIZON actions."""

    def __init__(self, state: int, action: int):
        super().__init__()
        self.eye = nn.Sequential(
            nn.Conv2d(3, 16, 5, 2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 5, 2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
        )
        self.head = nn.Sequential(
            nn.Linear(32 * 16 + state, 128), nn.ReLU(), nn.Linear(128, HORIZON * action)
        )
        self.action = action

    def forward(self, image, state):
        return self.head(torch.cat([self.eye(image), state], 1)).view(-1, HORIZON, self.action)


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("path")
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument(
        "--save", help="where the policy goes (default: a file that is removed at the end)"
    )
    p.add_argument("--metrics", help="serve the loader's figures to Prometheus at this address")
    a = p.parse_args()
    torch.manual_seed(0)
    # The other half of the cores decodes.
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))

    ds = robocache.open(a.path)
    camera = next(k for k, f in ds.features.items() if f.kind in ("video", "image"))
    fps = float(ds.fps)
    print(f"{a.path}: {ds.num_episodes} episodes, {ds.num_frames} frames, camera {camera}")

    loader = robocache.Loader(
        a.path,
        batch_size=a.batch_size,
        shuffle="global",
        seed=0,
        keys=[camera, "observation.state", "action"],
        delta_timestamps={"action": [i / fps for i in range(HORIZON)]},
        image_size=(96, 96),
        normalize="mean_std",
        runtime=robocache.Runtime(metrics=a.metrics),
    )
    for epoch in range(2):
        start, samples, first = time.perf_counter(), 0, None
        for batch in loader:
            first = first or time.perf_counter() - start
            samples += len(batch["action"])
        took = time.perf_counter() - start
        print(
            f"epoch {epoch}: {samples} samples in {took:.2f} s = {samples / took:.0f} "
            f"samples/s, first batch after {first * 1000:.0f} ms"
        )
    for key, value in batch.items():
        print(
            f"  {key:40} "
            f"{tuple(value.shape) if hasattr(value, 'shape') else type(value).__name__} "
            f"{getattr(value, 'dtype', '')}"
        )

    policy = Policy(batch["observation.state"].shape[-1], batch["action"].shape[-1])
    optimizer = torch.optim.AdamW(policy.parameters(), 1e-3)
    losses, wait, start = [], 0.0, time.perf_counter()
    # One epoch after the other.
    batches = itertools.chain.from_iterable(iter(lambda: loader, None))
    for step in range(a.steps):
        t = time.perf_counter()
        batch = next(batches)
        wait += time.perf_counter() - t
        predicted = policy(batch[camera].float() / 255, batch["observation.state"])
        keep = ~batch["action_is_pad"]
        loss = ((predicted - batch["action"]) ** 2)[keep].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 50 == 0 or step == a.steps - 1:
            recent = losses[-20:]
            print(f"step {step:4d}  loss {sum(recent) / len(recent):.4f}")
    took = time.perf_counter() - start
    before, after = sum(losses[:20]) / 20, sum(losses[-20:]) / 20
    print(
        f"{a.steps} steps in {took:.1f} s, waiting for data {100 * wait / took:.0f} % of it; "
        f"loss {before:.4f} -> {after:.4f}"
    )
    # The policy works on normalized values, so the normalizer is saved with it.
    with tempfile.TemporaryDirectory() as kept:
        path = a.save or os.path.join(kept, "policy.pt")
        torch.save(
            {"policy": policy.state_dict(), "normalizer": loader.normalizer.state_dict()}, path
        )
        loader.close()
        act(path, ds, camera, policy)
    if not after < before:
        raise SystemExit("the loss did not fall")


def act(path, ds, camera, policy):
    """Runs the saved policy as on a robot, which has the file but no dataset.

    Here, a recorded episode takes the place of the robot.
    """
    saved = torch.load(path, weights_only=True)
    policy.load_state_dict(saved["policy"])
    norm = robocache.Normalizer.from_state_dict(saved["normalizer"])
    streams = ds[0].streams
    state, recorded = (
        torch.from_numpy(streams["observation.state"].values[0]),
        torch.from_numpy(streams["action"].values[0]),
    )
    image = torch.from_numpy(streams[camera].frames([0]))
    image = nn.functional.interpolate(image.float() / 255, (96, 96))
    seen = norm({"observation.state": state[None]})
    with torch.no_grad():
        plan = norm.inverse({"action": policy(image, seen["observation.state"])})["action"]
    off = (plan[0, 0] - recorded).abs().mean().item()
    print(
        f"from the file alone: {HORIZON} actions of {plan.shape[-1]} numbers in the robot's "
        f"units, the first {off:.3f} from the recorded one"
    )


if __name__ == "__main__":
    main()
