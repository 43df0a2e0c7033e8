"""Runs a policy on the robot of robot.py, and prints the ages of its observations.

    python examples/deploy/robot.py &
    python examples/deploy/deploy.py policy [--seconds 10] [--record seen.mcap]

policy.npz and policy.contract.json are those of train.py.
"""

import argparse
import socket
import struct
import time
from pathlib import Path

import numpy as np
from robot import TOLERANCE_M
from train import Policy

import robocache


def describe(observation: robocache.live.Observation) -> str:
    """Returns the age of each stream, and the keys that are masked."""
    ages = [
        f"{key} {'-' if age is None else f'{age * 1e3:.0f} ms'}"
        for key, age in observation.ages.items()
    ]
    masked = [key for key, mask in observation.masks.items() if np.any(mask)]
    return f"ages: {', '.join(ages)}; masked: {', '.join(masked) or 'none'}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("policy", type=Path, help="the beginning of the names of both files")
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--record", type=Path, help="an MCAP file of what the policy sees")
    args = parser.parse_args()

    policy = Policy.load(args.policy.with_suffix(".npz"))
    contract = robocache.Contract.load(args.policy.with_suffix(".contract.json"))
    actions = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    actions.connect(("127.0.0.1", args.port + 1))
    actions.settimeout(1)
    computed, score = [], (float("nan"), 0.0)
    with robocache.Live(contract, source=f"foxglove://127.0.0.1:{args.port}") as live:
        if args.record:
            live.record(args.record)
        live.observe(timeout_s=10)  # waits for the robot
        begin = time.monotonic()
        for n in range(int(args.seconds * contract.rate_hz)):
            time.sleep(max(0, begin + n / contract.rate_hz - time.monotonic()))
            asked = time.perf_counter()
            observation = live.observe(timeout_s=0, as_numpy=True)
            action = policy.act(observation)
            computed.append(time.perf_counter() - asked)
            try:
                actions.send(struct.pack("<2d", *action))
                score = struct.unpack("<2d", actions.recv(16))
            except OSError as e:
                print(f"the robot does not answer: {e}")
                break
            if n % round(contract.rate_hz) == 0:
                print(describe(observation), flush=True)
        stats = live.stats()
    for key, counters in stats.items():
        print(f"{key}: {', '.join(f'{v} {name}' for name, v in counters.items() if v)}")
    print(f"observation and action: {np.median(computed) * 1e3:.2f} ms in the median")
    print(
        f"mean error {score[0] * 100:.1f} cm; {score[1]:.0%} of the time within "
        f"{TOLERANCE_M * 100:g} cm of the target"
    )


if __name__ == "__main__":
    main()
