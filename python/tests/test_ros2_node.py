"""Runs the node of examples/ros2 against a real ROS 2 publisher in .build/ros."""

import json
import os
import random
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

import robocache

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".build/ros/bin/python"
RECORDING = (
    Path(os.environ.get("ROBOCACHE_TESTDATA", ROOT / "../shared/data"))
    / "mcap_robot/recording_zstd.mcap"
)
POLICY = """
import json
import numpy as np

def act(observation):
    q = np.asarray(observation["joint_states.position"]).tolist()
    masked = bool(np.any(observation.masks["joint_states.position"]))
    print(json.dumps({"ages": observation.ages, "masked": masked, "q": q}), flush=True)
    return q[:2]
"""

pytestmark = [
    pytest.mark.skipif(not hasattr(robocache, "Live"), reason="this RoboCache has no Live"),
    pytest.mark.skipif(
        not PYTHON.exists(), reason="no ROS 2 in .build/ros; scripts/engines.sh ros installs it"
    ),
    pytest.mark.skipif(not RECORDING.exists(), reason="no shared data"),
]


def test_node_observes_what_a_robot_publishes(tmp_path):
    contract = robocache.Loader(str(RECORDING), hz=20, align="causal").contract()
    contract.save(tmp_path / "policy.contract.json")
    (tmp_path / "probe.py").write_text(POLICY)
    environment = os.environ | {
        "ROS_DOMAIN_ID": str(random.randint(1, 100)),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "PYTHONPATH": f"{ROOT / 'examples/ros2'}:{ROOT / 'python'}:{tmp_path}",
    }
    parameters = {
        "contract": tmp_path / "policy.contract.json",
        "policy": "probe:act",
        "record": tmp_path / "seen.mcap",
        "use_sim_time": "true",
    }
    arguments = [x for k, v in parameters.items() for x in ("-p", f"{k}:={v}")]
    node = subprocess.Popen(
        [PYTHON, "-m", "robocache_policy.node", "--ros-args", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        streams = json.loads(contract.to_json())["streams"]
        topics = sorted({s["message"]["topic"] for s in streams if s.get("message")})
        player = [PYTHON, ROOT / "python/tests/ros_publisher.py", RECORDING, "--clock", "--wait"]
        subprocess.run([*player, *topics], env=environment, check=True, timeout=120)
    finally:
        node.send_signal(signal.SIGINT)
        output, _ = node.communicate(timeout=30)
    assert node.returncode == 0
    calls = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert len(calls) > 20  # of 64 ticks; the node finds the publisher before the first one
    for call in calls:
        assert all(age is not None for age in call["ages"].values())
        # The contract's max_age is 1 s.
        assert call["masked"] == (call["ages"]["joint_states.position"] > 1)
    samples = robocache.open(str(RECORDING))[0].streams["joint_states.position"].values
    assert np.float32(calls[-1]["q"]).tolist() in np.float32(samples).tolist()
    replayed = robocache.live.verify(tmp_path / "seen.mcap")
    assert replayed.ticks >= len(calls) and replayed.different_ticks == 0
