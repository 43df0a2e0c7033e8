"""Simulates a robot: a tip in a plane that follows a moving target, seen by a slow camera.

    python examples/deploy/robot.py [--seconds 600] [--port 8765]

The program is the robot of deploy.py: it publishes its messages as a Foxglove WebSocket server, and
receives the tip's velocity over UDP on the next port. The class Robot has a virtual clock:
record.py and experiment.py do not wait.
"""

import argparse
import heapq
import itertools
import socket
import struct
import time
from typing import NamedTuple

import numpy as np

STEP_NS = 10_000_000  # between two steps of the simulation, and two joint states
FRAME_NS = 66_666_667  # between two images
START_NS = 1_700_000_000 * 10**9
CAMERA_DELAY_S = (0.080, 0.140)  # from the exposure to the arrival of the target's position
JOINT_DELAY_S = (0.003, 0.015)
LOST_IMAGES = 0.03
SPEED_LIMIT = 2.0  # m/s
LAG_S = 0.06  # time constant of the tip's velocity
WARM_UP_NS = 2 * 10**9  # at the beginning of an episode, in which errors do not count
TOLERANCE_M = 0.05
GOAL = 0.9  # the share of time within TOLERANCE_M that makes an episode a success

HEADER = "================================================================================\n"
STAMPED = (
    HEADER + "MSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n" + HEADER
) + "MSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
NUMBERS = "float64 x\nfloat64 y\nfloat64 z\n"
# The types of the topics, and their definitions in the language of ROS 2.
SCHEMAS = {
    "/joint_states": (
        "sensor_msgs/msg/JointState",
        "std_msgs/Header header\nstring[] name\n"
        "float64[] position\nfloat64[] velocity\nfloat64[] effort\n" + STAMPED,
    ),
    "/target": (
        "geometry_msgs/msg/PointStamped",
        f"std_msgs/Header header\nPoint point\n{STAMPED}{HEADER}MSG: geometry_msgs/Point\n{NUMBERS}",
    ),
    "/action": (
        "geometry_msgs/msg/Vector3Stamped",
        "std_msgs/Header header\nVector3 vector\n"
        f"{STAMPED}{HEADER}MSG: geometry_msgs/Vector3\n{NUMBERS}",
    ),
}


def vector_message(stamp_ns: int, xy: np.ndarray) -> bytes:
    """Returns the CDR bytes of a PointStamped or a Vector3Stamped."""
    time_and_frame = (*divmod(stamp_ns, 10**9), 6, b"world")
    return struct.pack("<4siII6s6x3d", b"\0\1\0\0", *time_and_frame, *xy, 0)


def joint_message(stamp_ns: int, position: np.ndarray, velocity: np.ndarray) -> bytes:
    """Returns the CDR bytes of a JointState with the joints x and y."""
    time_and_frame = (*divmod(stamp_ns, 10**9), 6, b"world")
    names = struct.pack("<4siII6s2xII2s2xI2s2x", b"\0\1\0\0", *time_and_frame, 2, 2, b"x", 2, b"y")
    return names + struct.pack("<I4x2dI4x2dI", 2, *position, 2, *velocity, 0)


class Message(NamedTuple):
    """A message; messages are ordered by their arrival."""

    arrival_ns: int
    stamp_ns: int
    topic: str
    payload: bytes


class Robot:
    """A tip with a commanded velocity, and a target on a smooth random path.

    Args:
        seed: Determines the path, the delays and the lost images.
        start_ns: The time at which the robot starts.
    """

    def __init__(self, seed: int, start_ns: int = START_NS):
        self.random = np.random.default_rng(seed)
        # The path is a sum of three oscillations in x and in y.
        self.frequency = 2 * np.pi * self.random.uniform(0.05, 0.4, (3, 2))
        self.phase = self.random.uniform(0, 2 * np.pi, (3, 2))
        self.radius = self.random.uniform(0.05, 0.2, (3, 2))
        self.start_ns = self.time_ns = start_ns
        self.next_image_ns = start_ns + int(self.random.integers(FRAME_NS))
        self.position = self.random.uniform(-0.4, 0.4, 2)
        self.velocity = np.zeros(2)
        self.under_way: list[Message] = []
        self.scored_from_ns = start_ns + WARM_UP_NS
        self.errors: list[float] = []

    def target(self, time_ns: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the true position and velocity of the target."""
        angle = self.frequency * ((time_ns - self.start_ns) / 1e9) + self.phase
        speed = self.radius * self.frequency
        return (self.radius * np.sin(angle)).sum(0), (speed * np.cos(angle)).sum(0)

    def advance(self, command: np.ndarray) -> list[Message]:
        """Moves for STEP_NS with a commanded velocity.

        Returns:
            The messages that arrived during the step, in the order of their arrival.
        """
        command = np.clip(command, -SPEED_LIMIT, SPEED_LIMIT)
        self.time_ns += STEP_NS
        self.velocity += (command - self.velocity) * (STEP_NS / 1e9 / LAG_S)
        self.position += self.velocity * (STEP_NS / 1e9)
        if self.time_ns > self.scored_from_ns:
            self.errors.append(float(np.hypot(*(self.target(self.time_ns)[0] - self.position))))
        joints = joint_message(self.time_ns, self.position, self.velocity)
        self.send("/joint_states", self.time_ns, JOINT_DELAY_S, joints)
        while self.next_image_ns <= self.time_ns:
            if self.random.random() >= LOST_IMAGES:
                seen = vector_message(self.next_image_ns, self.target(self.next_image_ns)[0])
                self.send("/target", self.next_image_ns, CAMERA_DELAY_S, seen)
            self.next_image_ns += FRAME_NS
        arrived = []
        while self.under_way and self.under_way[0].arrival_ns <= self.time_ns:
            arrived.append(heapq.heappop(self.under_way))
        return arrived

    def send(self, topic: str, stamp_ns: int, delay_s: tuple[float, float], payload: bytes) -> None:
        """Sends a message, which arrives after a random delay."""
        arrival = stamp_ns + int(self.random.uniform(*delay_s) * 1e9)
        heapq.heappush(self.under_way, Message(arrival, stamp_ns, topic, payload))

    def score(self) -> tuple[float, float]:
        """Returns the mean tracking error in m, and the share of time within TOLERANCE_M."""
        if not self.errors:
            return float("nan"), 0.0
        return float(np.mean(self.errors)), float(np.mean(np.array(self.errors) < TOLERANCE_M))


def main() -> None:
    import foxglove

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--port", type=int, default=8765, help="actions arrive at the next port")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    actions = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    actions.bind(("127.0.0.1", args.port + 1))
    actions.setblocking(False)
    server = foxglove.start_server(host="127.0.0.1", port=args.port)
    channels = {
        topic: foxglove.Channel(
            topic,
            message_encoding="cdr",
            schema=foxglove.Schema(name=name, encoding="ros2msg", data=text.encode()),
        )
        for topic, (name, text) in SCHEMAS.items()
        if topic != "/action"
    }
    print(f"the robot runs: foxglove://127.0.0.1:{args.port}", flush=True)
    robot, command = Robot(args.seed, time.time_ns()), np.zeros(2)
    has_policy = False
    for n in itertools.count():
        if n * STEP_NS >= args.seconds * 1e9:
            break
        time.sleep(max(0, robot.time_ns + STEP_NS - time.time_ns()) / 1e9)
        try:
            while True:  # The newest action counts.
                data, sender = actions.recvfrom(16)
                command = np.array(struct.unpack("<2d", data))
                if not has_policy:  # Its episode begins.
                    has_policy, robot.scored_from_ns = True, robot.time_ns + WARM_UP_NS
                    robot.errors.clear()
                actions.sendto(struct.pack("<2d", *robot.score()), sender)
        except BlockingIOError:
            pass
        for message in robot.advance(command):
            channels[message.topic].log(message.payload, log_time=message.arrival_ns)
    server.stop()
    print(f"mean error {robot.score()[0]:.3f} m, {robot.score()[1]:.0%} of the time on the target")


if __name__ == "__main__":
    main()
