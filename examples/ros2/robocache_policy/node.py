"""A ROS 2 node that calls a policy with observations of RoboCache.

rclpy and messages are imported when the node starts, so that the module can be imported without
ROS 2.
"""

from __future__ import annotations

import importlib
import json
import time
from functools import partial
from typing import Any

import numpy as np

import robocache

HISTORY = 100  # messages that a subscription holds while the executor is busy
DISCOVERY_S = 0.5  # how often publishers are looked up


class PolicyRunner:
    """Feeds a robocache.Live from raw subscriptions, and calls a policy at each tick.

    Args:
        node: An rclpy node. Its parameters are listed in README.md.
    """

    def __init__(self, node: Any) -> None:
        from diagnostic_msgs.msg import DiagnosticArray
        from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
        from rclpy.clock import Clock, ClockType
        from std_msgs.msg import Float64, Float64MultiArray

        def parameter(name: str, default: Any) -> Any:
            return node.declare_parameter(name, default).value

        self.node = node
        self.live = robocache.Live(
            parameter("contract", ""), record=parameter("record", "") or None
        )
        self.topics = [t for t in parameter("topics", [""]) if t] or self.contract_topics()
        self.rate = parameter("rate", 0.0) or self.live.contract.rate_hz
        self.policy = import_function(parameter("policy", ""))
        self.uses_sim_time = node.get_parameter("use_sim_time").value
        self.subscriptions: dict[str, tuple[Any, Any]] = {}  # topic: (offer, subscription)
        self.last_health: tuple[Any, float] = (None, 0)  # level, and when it was published
        self.action = node.create_publisher(Float64MultiArray, "~/action", 1)
        self.age = node.create_publisher(Float64, "~/age", 1)
        self.diagnostics = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        # observe() waits for messages, so they are received by another thread than that of ticks.
        self.messages_group = MutuallyExclusiveCallbackGroup()
        node.create_timer(1 / self.rate, self.tick, MutuallyExclusiveCallbackGroup())
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        node.create_timer(
            DISCOVERY_S, self.subscribe, MutuallyExclusiveCallbackGroup(), clock=steady
        )
        self.subscribe()

    def contract_topics(self) -> list[str]:
        """Returns the topics that the streams of the contract come from."""
        streams = json.loads(self.live.contract.to_json())["streams"]
        return sorted({s["message"]["topic"] for s in streams if s.get("message")})

    def now_ns(self) -> int:
        return self.node.get_clock().now().nanoseconds

    def subscribe(self) -> None:
        """Subscribes to topics whose publishers appeared or changed their offers."""
        from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

        for topic in self.topics:
            publishers = self.node.get_publishers_info_by_topic(topic)
            if not publishers:
                continue
            profiles = [p.qos_profile for p in publishers]
            is_reliable = all(p.reliability == ReliabilityPolicy.RELIABLE for p in profiles)
            is_latched = all(p.durability == DurabilityPolicy.TRANSIENT_LOCAL for p in profiles)
            offer = publishers[0].topic_type, is_reliable, is_latched
            previous, subscription = self.subscriptions.get(topic, (None, None))
            if offer == previous:
                continue
            if subscription:
                self.node.destroy_subscription(subscription)
            durability = (
                DurabilityPolicy.TRANSIENT_LOCAL if is_latched else DurabilityPolicy.VOLATILE
            )
            reliability = (
                ReliabilityPolicy.RELIABLE if is_reliable else ReliabilityPolicy.BEST_EFFORT
            )
            subscription = self.node.create_subscription(
                message_class(offer[0]),
                topic,
                partial(self.push, topic),
                QoSProfile(depth=HISTORY, reliability=reliability, durability=durability),
                callback_group=self.messages_group,
                raw=True,
            )
            self.subscriptions[topic] = offer, subscription

    def push(self, topic: str, payload: bytes, info: dict[str, int]) -> None:
        """Adds a message to the Live."""
        now = self.now_ns()
        # With simulated time, the time of sending is on another clock than ticks.
        stamp = now if self.uses_sim_time else info.get("source_timestamp") or now
        try:
            self.live.push_message(topic, payload, stamp, now)
        except robocache.Error as e:
            self.node.get_logger().warning(f"{topic}: {e}", throttle_duration_sec=5)

    def tick(self) -> None:
        """Makes an observation, and calls the policy if each stream had a sample."""
        from diagnostic_msgs.msg import DiagnosticStatus
        from std_msgs.msg import Float64, Float64MultiArray

        now = self.now_ns()
        if now == 0:
            return  # /clock has not begun
        try:
            observation = self.live.observe(now, timeout_s=min(0.05, 0.5 / self.rate))
        except robocache.Error as e:
            self.report(DiagnosticStatus.ERROR, str(e), {})
            return
        ages = observation.ages
        absent = [key for key, age in ages.items() if age is None]
        if absent:
            self.report(DiagnosticStatus.WARN, f"no sample yet: {', '.join(absent)}", ages)
            return
        masked = [key for key, mask in observation.masks.items() if np.any(mask)]
        self.age.publish(Float64(data=max(ages.values(), default=0.0)))
        if masked:
            self.report(DiagnosticStatus.WARN, f"masked: {', '.join(masked)}", ages)
        else:
            self.report(DiagnosticStatus.OK, "complete", ages)
        result = self.policy(observation) if self.policy else None
        if result is not None:
            values = np.asarray(result, np.float64).ravel().tolist()
            self.action.publish(Float64MultiArray(data=values))

    def report(self, level: bytes, message: str, ages: dict[str, float | None]) -> None:
        """Publishes the health, if the level changed or a second passed."""
        from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

        last_level, last_time = self.last_health
        if level == last_level and time.monotonic() < last_time + 1:
            return
        self.last_health = level, time.monotonic()
        status = DiagnosticStatus(level=level, name="robocache: observation", message=message)
        status.values = [
            KeyValue(key=f"age of {key} (s)", value="none" if age is None else f"{age:.4f}")
            for key, age in ages.items()
        ] + [
            KeyValue(key=f"{name} of {key}", value=str(count))
            for key, counters in self.live.stats().items()
            for name, count in counters.items()
        ]
        array = DiagnosticArray(status=[status])
        array.header.stamp = self.node.get_clock().now().to_msg()
        self.diagnostics.publish(array)


def import_function(name: str) -> Any:
    """Returns the function "module:function", or None for an empty name."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function) if name else None


def message_class(name: str) -> Any:
    """Returns the class of a type such as "sensor_msgs/msg/Image"."""
    package, *_, short = name.split("/")
    return getattr(importlib.import_module(f"{package}.msg"), short)


def main() -> None:
    import rclpy
    from rclpy.executors import ExternalShutdownException, MultiThreadedExecutor
    from rclpy.signals import SignalHandlerOptions

    # Ctrl-C ends the executor before the context, so that no timer publishes after the end.
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node("robocache_policy")
    runner = PolicyRunner(node)
    executor = MultiThreadedExecutor(num_threads=3)
    executor.add_node(node)
    try:
        executor.spin()
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        executor.shutdown()
        runner.live.close()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
