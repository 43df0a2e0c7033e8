"""Records demonstrations of an expert that knows where the target is.

    python examples/deploy/record.py recordings [--episodes 10] [--seed 0]

Each episode is an MCAP file, as `ros2 bag record` writes them: a message has the stamp of its
header and a log time, at which it arrived.
"""

import argparse
from pathlib import Path

import numpy as np
from mcap.writer import Writer
from robot import LAG_S, SCHEMAS, Message, Robot, vector_message

ACTION_NS = 50_000_000  # between two actions
GAIN = 4.0  # 1/s


def expert(robot: Robot) -> np.ndarray:
    """Returns the velocity that leads the tip to the target, from the true state of both."""
    position, _ = robot.target(robot.time_ns)
    _, velocity = robot.target(robot.time_ns + int(LAG_S * 1e9))  # when the tip has reached it
    return velocity + GAIN * (position - robot.position)


def demonstrate(seed: int, seconds: float) -> list[Message]:
    """Returns the messages of an episode in the order of their arrival.

    Random pushes lead the tip away from the target, so that the recording shows how to return. The
    recorded actions are those of the expert alone.
    """
    robot, random = Robot(seed), np.random.default_rng([seed, 1])
    command = push = np.zeros(2)
    messages = []
    while robot.time_ns - robot.start_ns < seconds * 1e9:
        if (robot.time_ns - robot.start_ns) % ACTION_NS == 0:
            action = expert(robot)
            data = vector_message(robot.time_ns, action)
            messages.append(Message(robot.time_ns, robot.time_ns, "/action", data))
            push = 0.9 * push + random.normal(0, 0.15, 2)
            command = action + push
        messages += robot.advance(command)
    return sorted(messages)


def write_recording(path: Path, messages: list[Message]) -> None:
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start(profile="ros2", library="examples/deploy")
        channels = {
            topic: writer.register_channel(
                topic, "cdr", writer.register_schema(name, "ros2msg", text.encode())
            )
            for topic, (name, text) in SCHEMAS.items()
        }
        for m in messages:
            writer.add_message(channels[m.topic], m.arrival_ns, m.payload, m.stamp_ns)
        writer.finish()


def record(folder: Path, episodes: int, seed: int, seconds: float = 20) -> None:
    """Writes a recording per episode."""
    folder.mkdir(parents=True, exist_ok=True)
    for n in range(episodes):
        messages = demonstrate(1000 * seed + n, seconds)
        write_recording(folder / f"episode_{n:03d}.mcap", messages)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    record(args.folder, args.episodes, args.seed, args.seconds)
    print(f"{args.episodes} episodes of {args.seconds:g} s in {args.folder}")


if __name__ == "__main__":
    main()
