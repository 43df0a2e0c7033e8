"""Opens a synthetic dataset with lerobot and reads the bar code of its pictures: python check_lerobot.py ROOT"""
import sys

from lerobot.datasets.lerobot_dataset import LeRobotDataset


def check8(w):
    c = 0x5A
    for i in range(56, -1, -8):
        c ^= w >> i & 255
        for _ in range(8):
            c = (c << 1 ^ 7) & 255 if c & 128 else c << 1
    return c


def read_code(chw):
    """(episode, row) of a float picture [3, H, W] in 0..1."""
    _, height, width = chw.shape
    side = max(6, height // 48)
    columns = width // side
    rows = -(-44 // columns)
    word = 0
    for i in range(44):
        x, y = i % columns * side, height - (rows - i // columns) * side
        m = chw[:, y + side // 3:y + side - side // 3, x + side // 3:x + side - side // 3].mean()
        word = word << 1 | int(m > 128 / 255)
    w = word >> 8
    assert check8(w) == word & 255, f"no code: {word:011x}"
    return w >> 20, w & 0xFFFFF


ds = LeRobotDataset("synth/test", root=sys.argv[1])
cameras = ds.meta.camera_keys
assert len(cameras) == 2, cameras
n = 0
for i in list(range(0, len(ds), 7)) + [len(ds) - 1]:
    item = ds[i]
    for c in cameras:
        got, want = read_code(item[c]), (int(item["episode_index"]), int(item["frame_index"]))
        assert got == want, f"item {i} {c}: shows {got}, wants {want}"
        n += 1
    assert item["observation.state"].shape == (4,) and item["action"].shape == (2,) and item["task"].startswith("reach the")
    if "observation.force" in item:
        assert item["observation.force"].dim() == 2 and item["observation.force.recorded"].shape[0] == item["observation.force"].shape[0]
print("ok", len(ds), n)
