"""Compares policies that were trained on causal and on default observations.

    python examples/deploy/experiment.py [--seeds 5] [--episodes 20] [--json result.json]

For each seed, the expert is recorded, a policy per alignment is trained on the recordings, and all follow
the same targets. The robot's clock is virtual, so that an episode takes no longer than its
computation. The messages arrive in robocache.Live as they arrived in the recordings: the camera's
after 80 to 140 ms.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
from record import ACTION_NS, record
from robot import GOAL, STEP_NS, TOLERANCE_M, Robot
from train import ALIGNMENTS, Policy, train

import robocache

LATENCY_NS = 10_000_000  # from an observation to the action's effect


def run_episode(live: robocache.Live, policy: Policy, robot: Robot, seconds: float) -> None:
    """Lets a policy move the robot."""
    live.reset()
    command, action = np.zeros(2), np.zeros(2)
    acts_ns = 0
    while robot.time_ns - robot.start_ns < seconds * 1e9:
        if robot.time_ns >= acts_ns:
            command = action
        for m in robot.advance(command):
            live.push_message(m.topic, m.payload, arrival_ns=m.arrival_ns)
        if (robot.time_ns - robot.start_ns) % ACTION_NS == 0:
            action = policy.act(live.observe(robot.time_ns, timeout_s=0, as_numpy=True))
            acts_ns = robot.time_ns + LATENCY_NS - STEP_NS


def evaluate(
    policy: Policy, contract: robocache.Contract, seed: int, episodes: int, seconds: float
) -> dict:
    """Returns the results of the episodes of a seed, and the delays of the streams."""
    scores = []
    with robocache.Live(contract) as live:
        for n in range(episodes):
            robot = Robot(1_000_000 + 1000 * seed + n)
            run_episode(live, policy, robot, seconds)
            scores.append(robot.score())
        delays = live.latency()
    return {
        "success": float(np.mean([share >= GOAL for _, share in scores])),
        "error_m": float(np.mean([error for error, _ in scores])),
        "on_target": float(np.mean([share for _, share in scores])),
        "median_delay_s": {k: d["median_ns"] / 1e9 for k, d in delays.items()},
        "max_delay_s": {k: d["max_ns"] / 1e9 for k, d in delays.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--recorded", type=int, default=10, help="episodes to train on")
    parser.add_argument("--episodes", type=int, default=20, help="episodes to evaluate")
    parser.add_argument("--seconds", type=float, default=20, help="of an episode")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()

    results: dict[str, list[dict]] = {name: [] for name in ALIGNMENTS}
    for seed in range(args.seeds):
        with tempfile.TemporaryDirectory() as folder:
            record(Path(folder), args.recorded, seed, args.seconds)
            for align, rows in results.items():
                policy, contract, error = train(Path(folder), align)
                row = evaluate(policy, contract, seed, args.episodes, args.seconds)
                rows.append({"seed": seed, "training_error_m_s": error, **row})
    print(
        f"{args.episodes} episodes per seed; success: within {TOLERANCE_M * 100:g} cm of the target"
        f" for {GOAL:.0%} of the time\n"
    )
    print("| trained with | seed | error in training | success | mean error | time on target |")
    print("|---|---|---|---|---|---|")
    for align, rows in results.items():
        for seed, chosen in [*((r["seed"], [r]) for r in rows), ("all", rows)]:
            mean = {k: np.mean([r[k] for r in chosen]) for k in rows[0] if "delay" not in k}
            print(
                f"| {align} | {seed} | {mean['training_error_m_s']:.3f} m/s | {mean['success']:.0%}"
                f" | {mean['error_m'] * 100:.1f} cm | {mean['on_target']:.0%} |"
            )
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
