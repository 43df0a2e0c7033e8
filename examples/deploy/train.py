"""Fits a policy to recordings, and writes it with the contract of its observations.

    python examples/deploy/train.py recordings policy [--align default|causal|delayed]

The policy is linear: least squares from the observation (the last 0.3 s of the target, and the
joints) to the expert's action. policy.npz holds its weights, policy.contract.json its observation.

The alignments of the observation:

- default interpolates between the samples before and after the tick, as most training code does.
- causal holds the newest samples that had arrived at the tick, as on the robot.
- delayed is causal too. It interpolates the target's path as it was 0.22 s earlier, when nearly all
  of its samples had arrived, so that the policy knows how old each position is.
"""

import argparse
from pathlib import Path

import numpy as np
from record import ACTION_NS

import robocache

RATE = 10**9 // ACTION_NS
JOINTS = ["joint_states.position", "joint_states.velocity"]
WINDOW = [-0.3, -0.25, -0.2, -0.15, -0.1, -0.05, 0]
ALIGNMENTS: dict[str, object] = {
    "default": None,
    "causal": "causal",
    "delayed": robocache.Align(causal=True, modes={"target": "linear"}, delay={"target": 0.22}),
}
RIDGE = 1e-6  # keeps weights small along directions that the recordings do not show


class Policy:
    """A linear function of an observation."""

    def __init__(self, weights: np.ndarray):
        self.weights = weights

    @classmethod
    def load(cls, path: Path) -> "Policy":
        return cls(np.load(path)["weights"])

    def save(self, path: Path) -> None:
        np.savez(path, weights=self.weights)

    def __call__(self, observation: dict) -> np.ndarray:
        """Returns the velocity of the tip, (..., 2)."""
        return features_of(observation) @ self.weights

    def act(self, observation: robocache.live.Observation) -> np.ndarray:
        """Returns the action of a live observation. The tip waits while a value is masked."""
        if any(np.any(mask) for mask in observation.masks.values()):
            return np.zeros(2)
        return self(observation)


def features_of(observation: dict) -> np.ndarray:
    """Returns the inputs of the policy from one observation, or from a batch of them."""
    target = np.asarray(observation["target"])[..., :2]  # (..., 7, 2): z is always 0
    inputs = [target.reshape(*target.shape[:-2], -1)]
    inputs += [np.asarray(observation[key]) for key in JOINTS]
    return np.concatenate([*inputs, np.ones_like(inputs[0][..., :1])], -1)


def load_data(recordings: Path, **options: object) -> robocache.Loader:
    return robocache.Loader(
        str(recordings),
        hz=RATE,
        keys=["target", *JOINTS, "action"],
        delta_timestamps={"target": WINDOW},
        batch_size=256,
        **options,
    )


def fit(loader: robocache.Loader) -> tuple[Policy, float]:
    """Returns the policy, and the root mean square of its error in m/s."""
    inputs, actions = [], []
    for batch in loader:
        masks = [np.asarray(v) for k, v in batch.items() if k.endswith("_is_pad")]
        valid = ~np.any([m.reshape(len(m), -1).any(1) for m in masks], 0)
        inputs.append(features_of(batch)[valid])
        actions.append(np.asarray(batch["action"])[valid, :2])
    x, y = np.concatenate(inputs).astype(np.float64), np.concatenate(actions).astype(np.float64)
    weights = np.linalg.solve(x.T @ x + RIDGE * len(x) * np.eye(x.shape[1]), x.T @ y)
    return Policy(weights.astype(np.float32)), float(np.sqrt(np.mean((x @ weights - y) ** 2)))


def train(recordings: Path, align: str) -> tuple[Policy, robocache.Contract, float]:
    """Returns the policy, the contract of its observations on the robot, and the error."""
    # The actions stay in m/s.
    normalize: object = dict.fromkeys(["target", *JOINTS], "mean_std")
    if align != "default":
        with load_data(recordings, normalize=normalize, align=ALIGNMENTS[align]) as loader:
            policy, error = fit(loader)
            return policy, loader.contract(), error
    with load_data(recordings, normalize=normalize) as loader:
        policy, error = fit(loader)
        normalize = loader.normalizer
    # loader.contract() would be an error: no robot can make these observations. People deploy such
    # policies with the newest values that have arrived. A causal contract with the normalization of
    # the training gives these.
    with load_data(recordings, normalize=normalize, align="causal") as loader:
        return policy, loader.contract(), error


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recordings", type=Path)
    parser.add_argument("policy", type=Path, help="the beginning of the names of both files")
    parser.add_argument("--align", choices=ALIGNMENTS, default="causal")
    args = parser.parse_args()
    policy, contract, error = train(args.recordings, args.align)
    policy.save(args.policy.with_suffix(".npz"))
    contract.save(args.policy.with_suffix(".contract.json"))
    print(contract)
    print(f"the actions differ from the expert's by {error:.3f} m/s")


if __name__ == "__main__":
    main()
