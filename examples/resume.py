"""Kill a training run in the middle of an epoch, and continue at exactly the same position.

    python examples/resume.py PATH

The state is a small dict that JSON can store. It can be restored with another number of threads or
ranks, or another batch size.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile

import robocache


def loader(path):
    return robocache.Loader(path, batch_size=16, seed=7, keys=["index"])


def train(path, checkpoint, batches):
    """Takes batches, and writes a checkpoint after each one, until the process is killed."""
    with loader(path) as ld:
        seen = []
        for n, batch in enumerate(ld, 1):
            seen += batch["index"].tolist()
            with open(checkpoint + ".new", "w") as f:
                json.dump({"seen": seen, "loader": ld.state_dict()}, f)
            # An atomic replacement: the checkpoint is never half-written.
            os.replace(checkpoint + ".new", checkpoint)
            if n == batches:
                os.kill(os.getpid(), signal.SIGKILL)  # As in a power failure.


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("path")
    p.add_argument("--checkpoint", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.checkpoint:
        return train(a.path, a.checkpoint, batches=3)

    with tempfile.TemporaryDirectory() as folder:
        checkpoint = os.path.join(folder, "checkpoint.json")
        died = subprocess.run([sys.executable, __file__, a.path, "--checkpoint", checkpoint])
        assert died.returncode == -signal.SIGKILL, died
        with open(checkpoint) as f:
            saved = json.load(f)
    print(f"killed after {len(saved['seen'])} samples; the state: {json.dumps(saved['loader'])}")

    with loader(a.path) as ld:
        ld.load_state_dict(saved["loader"])
        rest = [i for batch in ld for i in batch["index"].tolist()]
    with loader(a.path) as ld:
        whole = [i for batch in ld for i in batch["index"].tolist()]
    assert saved["seen"] + rest == whole
    print(
        f"resumed: {len(rest)} samples, the same that an unbroken epoch of {len(whole)} gives there"
    )


if __name__ == "__main__":
    main()
