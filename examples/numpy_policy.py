"""Train a small policy in NumPy on batches of robocache.Loader and measure it on held-out episodes.

    python examples/numpy_policy.py PATH [--steps 400]

The policy is a network with one hidden layer. It reads a 24x24 image and the state, and predicts
the next 8 actions. The example needs only NumPy; train_policy.py does the same in torch.
"""

import argparse
import itertools
import time

import numpy as np

import robocache

HORIZON = 8
HIDDEN = 128
LEARNING_RATE = 1e-3


class Policy:
    """A network with one hidden layer of tanh units, trained by Adam (Kingma and Ba, 2015)."""

    def __init__(self, inputs: int, outputs: int):
        rng = np.random.default_rng(0)
        weights = [
            rng.normal(0, inputs**-0.5, (inputs, HIDDEN)),
            np.zeros(HIDDEN),
            rng.normal(0, HIDDEN**-0.5, (HIDDEN, outputs)),
            np.zeros(outputs),
        ]
        self.weights = [w.astype(np.float32) for w in weights]
        self.moments = [(np.zeros_like(w), np.zeros_like(w)) for w in self.weights]
        self.steps = 0

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Returns the predicted actions, (B, outputs), of inputs (B, inputs)."""
        w1, b1, w2, b2 = self.weights
        return np.tanh(x @ w1 + b1) @ w2 + b2

    def train(self, x: np.ndarray, target: np.ndarray, valid: np.ndarray) -> float:
        """Makes one step of Adam on the mean squared error, which it returns."""
        w1, b1, w2, b2 = self.weights
        hidden = np.tanh(x @ w1 + b1)
        error = (hidden @ w2 + b2 - target) * valid
        d_out = 2 * error / max(valid.sum(), 1)
        d_hidden = (d_out @ w2.T) * (1 - hidden**2)
        gradients = [x.T @ d_hidden, d_hidden.sum(0), hidden.T @ d_out, d_out.sum(0)]
        self.steps += 1
        for w, g, (m, v) in zip(self.weights, gradients, self.moments, strict=True):
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            mean, power = m / (1 - 0.9**self.steps), v / (1 - 0.999**self.steps)
            w -= LEARNING_RATE * mean / (np.sqrt(power) + 1e-8)
        return float((error**2).sum() / max(valid.sum(), 1))


def arrays_of(batch: dict, camera: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the inputs (B, 1728 + state), the targets (B, 8 * action) and their 0/1 mask."""
    image = np.asarray(batch[camera], np.float32) / 255 - 0.5  # (B, 3, 24, 24)
    state, action = np.asarray(batch["observation.state"]), np.asarray(batch["action"])
    valid = np.broadcast_to(~np.asarray(batch["action_is_pad"])[..., None], action.shape)
    count = len(image)
    inputs = np.concatenate([image.reshape(count, -1), state.reshape(count, -1)], 1)
    return inputs, action.reshape(count, -1), valid.reshape(count, -1).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=64)
    args = parser.parse_args()

    ds = robocache.open(args.path)
    camera = next(k for k, f in ds.features.items() if f.kind in ("video", "image"))
    episodes = [int(index) for index in ds.episode_indices]
    held_out = episodes[-max(1, len(episodes) // 4) :]
    options = {
        "batch_size": args.batch_size,
        "keys": [camera, "observation.state", "action"],
        "delta_timestamps": {"action": [i / float(ds.fps) for i in range(HORIZON)]},
        "image_size": (24, 24),
    }
    train = robocache.Loader(
        args.path,
        episodes=episodes[: -len(held_out)],
        shuffle="global",
        seed=0,
        normalize="mean_std",
        **options,
    )
    # Held-out data is normalized by the statistics of the training episodes.
    test = robocache.Loader(args.path, episodes=held_out, normalize=train.normalizer, **options)

    policy, losses, waited, start = None, [], 0.0, time.perf_counter()
    batches = itertools.chain.from_iterable(iter(lambda: train, None))  # One epoch after the other.
    for step in range(args.steps):
        asked = time.perf_counter()
        inputs, target, valid = arrays_of(next(batches), camera)
        waited += time.perf_counter() - asked
        policy = policy or Policy(inputs.shape[1], target.shape[1])
        losses.append(policy.train(inputs, target, valid))
        if step % 50 == 0 or step == args.steps - 1:
            print(f"step {step:4d}  loss {np.mean(losses[-20:]):.4f}")
    took = time.perf_counter() - start
    print(f"{args.steps} steps in {took:.1f} s, {100 * waited / took:.0f} % of it waiting for data")

    squares, mean_squares, count = 0.0, 0.0, 0.0
    for batch in test:
        inputs, target, valid = arrays_of(batch, camera)
        squares += float(((policy(inputs) - target) ** 2 * valid).sum())
        mean_squares += float((target**2 * valid).sum())
        count += float(valid.sum())
    error, baseline = squares / count, mean_squares / count
    print(
        f"held-out episodes {held_out}: mean squared error {error:.4f} of normalised actions; "
        f"the mean action has {baseline:.4f}"
    )
    train.close()
    test.close()
    if not error < baseline:
        raise SystemExit("the policy is no better than the mean action")


if __name__ == "__main__":
    main()
