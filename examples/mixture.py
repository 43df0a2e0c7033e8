"""Two datasets in one batch: weights, a common key, a common clock, a checkpoint in the middle.

    python examples/mixture.py PATH [OTHER]

Without OTHER the first is mixed with a part of itself, so that it runs with one dataset."""

import argparse
import json

import numpy as np

import robocache
from robocache import Mix


def mixture(a):
    ds = robocache.open(a.path)
    other = robocache.open(a.other or a.path)
    return robocache.Loader(
        [
            Mix(ds, weight=3, name="most"),
            # An own selection and own statistics. If keys have other names, add
            # rename={"their_key": "our_key"}.
            Mix(other, weight=1, name="some", episodes=[0]),
        ],
        batch_size=16,
        seed=1,
        hz=20,  # Seconds have the same meaning in both datasets, independent of their rates.
        keys=["observation.state", "action", "index"],
        delta_timestamps={"action": [0, 0.05, 0.1]},
        normalize={"action": "mean_std"},  # Each dataset is normalized by its own statistics.
        mixture=robocache.Mixture(epoch_size=320),
    )


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("path")
    p.add_argument("other", nargs="?")
    a = p.parse_args()

    with mixture(a) as loader:
        order = loader.locate(loader.order(0))  # This reads no data.
        seen = []
        for n, batch in enumerate(loader):
            seen += batch["dataset_index"].tolist()
            if n == 4:
                state = json.dumps(loader.state_dict())
        assert seen == order.dataset_index.tolist()
        counts = np.bincount(seen)
        print(f"an epoch of {len(seen)} samples: {counts[0]} of most, {counts[1]} of some")
        worst = max(abs(sum(s == 0 for s in seen[:k]) - 0.75 * k) for k in range(1, len(seen) + 1))
        print(f"at no moment more than {worst:.2f} samples from 3 to 1")
        print({k: tuple(v.shape) for k, v in batch.items()})
        # Each row is denormalized by its own source.
        back = loader.normalizer.inverse(batch)["action"]
        print(
            f"undone: {back.shape[-1]} numbers a row, by the normalizers of "
            f"{' and '.join(loader.normalizer.sources)}"
        )

    with mixture(a) as loader:
        loader.load_state_dict(json.loads(state))
        rest = [i for batch in loader for i in batch["dataset_index"].tolist()]
    assert rest == seen[5 * 16 :]
    print(f"resumed: the {len(rest)} samples that were left, in their order")


if __name__ == "__main__":
    main()
