"""Publishes messages with rclpy and prints the SHA-256 of each message's serialization.

Usage: publish.py KIND TOPIC OFFER COUNT FIRST

KIND is a key of MESSAGES. OFFER is "reliable", "best_effort" or "transient_local". FIRST is the
number of the first message. Volatile messages wait for a subscription. COUNT more messages follow
each line of the standard input. The publisher stays until it closes.
"""

import hashlib
import sys
import time

import numpy as np
import rclpy
from geometry_msgs.msg import TransformStamped
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import serialize_message
from sensor_msgs.msg import CompressedImage, JointState
from std_msgs.msg import String


def joint_state(number):
    message = JointState(name=["shoulder", "elbow"], position=[float(number), 0.5])
    message.header.stamp.nanosec = number
    # serialize_message and publish leave different bytes in the padding, which Fast CDR does not
    # initialize. The serialized bytes are published, so that they are known.
    return serialize_message(message)


# The values of the others leave no padding between members.
def image(number, size=100_000):
    data = np.random.default_rng(number).integers(0, 256, size, np.uint8)
    message = CompressedImage(format="jpg", data=data.tobytes())
    message.header.frame_id = "map"
    return message


def transform(number):
    from tf2_msgs.msg import TFMessage

    item = TransformStamped(child_frame_id=f"tool{number:03}")
    item.header.frame_id = "map"
    return TFMessage(transforms=[item])


MESSAGES = {
    "joint_state": joint_state,
    "image": image,
    "huge_image": lambda number: image(number, 65 << 20 if number == 0 else 10),
    "transform": transform,
    "string": lambda number: String(data="x" * number),
}
kind, topic, offer, count, first = sys.argv[1:]
make = MESSAGES[kind]
rclpy.init()
node = rclpy.create_node("publisher")
publisher = node.create_publisher(
    JointState if kind == "joint_state" else type(make(0)),
    topic,
    QoSProfile(
        depth=100,
        reliability=ReliabilityPolicy.BEST_EFFORT
        if offer == "best_effort"
        else ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL
        if offer == "transient_local"
        else DurabilityPolicy.VOLATILE,
    ),
)
while offer != "transient_local" and publisher.get_subscription_count() == 0:
    time.sleep(0.01)
time.sleep(0.2)  # Discovery of the other side can take longer.
number = int(first)
while True:
    for number in range(number, number + int(count)):
        message = make(number)
        publisher.publish(message)
        data = message if isinstance(message, bytes) else serialize_message(message)
        data += bytes(-len(data) % 4)  # DDS transmits multiples of 4 bytes.
        print(hashlib.sha256(data).hexdigest(), flush=True)
        time.sleep(0.005)
    number += 1
    print("done", flush=True)
    if not sys.stdin.readline():
        break
