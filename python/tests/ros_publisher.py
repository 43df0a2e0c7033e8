"""Publishes the messages of an MCAP recording with rclpy, as serialized bytes.

Runs in .build/ros (scripts/engines.sh ros). Without --orders, each message is published at its log
time, relative to the first message and divided by --speed. With --orders, each line of the standard
input is the number of a message, which is published at once.
"""

import argparse
import importlib
import sys
import time

import mcap.reader
import rclpy
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosgraph_msgs.msg import Clock


def message_class(name):
    """Returns the class of a type, for example "sensor_msgs/msg/Image"."""
    package, *_, short = name.split("/")
    return getattr(importlib.import_module(package + ".msg"), short)


def quality(topic, best_effort, depth):
    latched = topic.endswith("tf_static")
    return QoSProfile(
        depth=depth,
        reliability=(
            ReliabilityPolicy.BEST_EFFORT if topic in best_effort else ReliabilityPolicy.RELIABLE
        ),
        durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
    )


def read_recording(path):
    """Returns the messages in the order of the file: topic, type, log time in ns, bytes."""
    with open(path, "rb") as file:
        messages = mcap.reader.NonSeekingReader(file).iter_messages(log_time_order=False)
        return [(c.topic, s.name, m.log_time, m.data) for s, c, m in messages]


def play(messages, publish, speed):
    start, first = time.monotonic(), messages[0][2]
    for number, message in enumerate(messages):
        time.sleep(max(0, start + (message[2] - first) / 1e9 / speed - time.monotonic()))
        publish(number)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recording")
    parser.add_argument("--speed", type=float, default=1)
    parser.add_argument("--orders", action="store_true", help="read numbers of messages")
    parser.add_argument(
        "--wait", nargs="*", default=[], help="topics whose subscribers are awaited"
    )
    parser.add_argument("--stay", type=float, default=1, help="seconds after the last message")
    parser.add_argument("--best-effort", nargs="*", default=[], metavar="TOPIC")
    parser.add_argument("--depth", type=int, default=1000)
    parser.add_argument("--clock", action="store_true", help="publish log times on /clock")
    options = parser.parse_args()
    messages = read_recording(options.recording)
    rclpy.init()
    node = rclpy.create_node("robocache_publisher")
    publishers = {
        topic: node.create_publisher(
            message_class(name), topic, quality(topic, options.best_effort, options.depth)
        )
        for topic, name in {m[0]: m[1] for m in messages}.items()
    }
    clock = node.create_publisher(Clock, "/clock", 10) if options.clock else None

    def publish(number):
        topic, _, log, data = messages[number]
        if clock:
            now = Clock()
            now.clock.sec, now.clock.nanosec = divmod(log, 10**9)
            clock.publish(now)
        publishers[topic].publish(data)

    print("ready", flush=True)
    if options.orders:
        for line in sys.stdin:
            publish(int(line))
        return
    while not all(publishers[topic].get_subscription_count() for topic in options.wait):
        time.sleep(0.01)
    play(messages, publish, options.speed)
    time.sleep(options.stay)


if __name__ == "__main__":
    main()
