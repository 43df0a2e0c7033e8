"""Times LeRobot's own deletion of every tenth episode: peer_delete.py SOURCE DST."""

import sys
import time
from pathlib import Path

from lerobot.datasets.dataset_tools import delete_episodes
from lerobot.datasets.lerobot_dataset import LeRobotDataset

source, dst = sys.argv[1:3]
ds = LeRobotDataset("local/set", root=source)
begin = time.perf_counter()
delete_episodes(
    ds, list(range(0, ds.meta.total_episodes, 10)), output_dir=Path(dst), repo_id="local/out"
)
print(f"lerobot: {time.perf_counter() - begin:.2f} s without starting Python")
