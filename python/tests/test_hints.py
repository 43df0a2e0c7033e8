"""Hints name options as keywords in Python, and as flags on the command line of the package."""

import dataclasses
import re
import shutil
import subprocess
import sys

import pytest
import robocache
from conftest import ROOT

COMMAND = [sys.executable, "-m", "robocache"]


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """Returns a recording with two clocks."""
    path = tmp_path_factory.mktemp("hints") / "recording"
    args = [
        "--format",
        "mcap",
        "--cameras",
        "0",
        "--rates",
        "camera=30,joints=100",
        "--episodes",
        "2",
        "--seconds",
        "3",
    ]
    subprocess.run([*COMMAND, "synth", str(path), *args], check=True, capture_output=True)
    return path


def test_hints_of_findings(recording, tmp_path):
    hints = [f.hint for f in robocache.doctor(recording).findings if f.hint]
    hints += [
        f.hint for f in robocache.convert(recording, tmp_path / "set", hz=30).findings if f.hint
    ]
    assert any('Pass align="causal" ' in h for h in hints), hints
    assert not [
        h for h in hints if re.search(r"(^|\s)--[a-z]|in Python|robocache (convert|doctor)\b", h)
    ]
    ran = subprocess.run([*COMMAND, "doctor", str(recording)], capture_output=True, text=True)
    assert "robocache convert --align causal " in ran.stdout and "align=" not in ran.stdout


def test_hints_of_errors(recording):
    with pytest.raises(robocache.Misuse) as e:
        robocache.open(recording, rows_hz=30)  # its rows have timestamps
    assert "hz= resamples" in e.value.hint and "--" not in e.value.hint
    ran = subprocess.run(
        [*COMMAND, "inspect", str(recording), "--rows-hz", "30"], capture_output=True, text=True
    )
    assert ran.returncode == 2 and "leave it out; --hz resamples" in ran.stderr, ran.stderr


# Fields that hints write differently: as plain keywords, as nested groups, as keywords of open.
PLAIN = {("cache", "where"), ("device", "name"), ("images", "size")}
NESTED = {"align", "augment", "follow"}
OPENING = "open"


def test_hints_name_fields_of_groups():
    """The tables of hints_python.go list exactly the groups and fields of robocache.options."""
    text = (ROOT / "hints_python.go").read_text()
    places = re.findall(r'"(\w+)": +\{"(\w+)", "(\w+)", "(\w+)"\}', text)
    for name, keyword, group, _ in places:
        assert robocache.options.GROUPS[keyword].__name__ == group, name
    opening = re.search(r"pythonOpening = \[\]string\{(.*?)\}", text, re.DOTALL)[1]
    found = {(keyword, field): name for name, keyword, _, field in places}
    found |= {(OPENING, name): name for name in re.findall(r'"(\w+)"', opening)}
    wanted = {
        (keyword, field.name): robocache.options.engine_name(keyword, field.name)
        for keyword, cls in robocache.options.GROUPS.items()
        for field in dataclasses.fields(cls)
        if keyword not in NESTED and (keyword, field.name) not in PLAIN
    }
    assert found == wanted


def groups_in(hint):
    """Evaluates each group robocache.X(…) in a hint. An … marks a value that the user chooses."""
    groups = []
    for cls in robocache.options.GROUPS.values():
        for found in re.finditer(rf"(robocache\.{cls.__name__}\()", hint):
            end = start = found.start(1)
            depth = 0
            while not (depth == 0 and end > start and hint[end - 1] == ")"):
                depth += {"(": 1, ")": -1}.get(hint[end], 0)
                end += 1
            text = hint[start:end].replace("…", "...")
            groups.append(eval(text, {"robocache": robocache}))  # noqa: S307
    return groups


def test_groups_in_hints(h264):
    """A group in a hint is Python source that creates the group."""
    camera = next(k for k in robocache.open(h264).features if "image" in k)
    crop = {"size": (8, 8), "keep": [camera]}
    device = robocache.Device
    for make, text in (
        (
            lambda: robocache.Loader(h264, augment=robocache.Augment(hflip={"p": 0.5})),
            'robocache.Augment(hflip={"p": …, "negate": {',
        ),
        (
            lambda: robocache.Loader(h264, augment=robocache.Augment(random_crop=crop)),
            'robocache.Augment(cameras=["KEY"])',
        ),
        (lambda: robocache.Loader(h264, format="lerobot"), "robocache.Open(format=…)"),
        (lambda: robocache.Loader(h264, cache="8GiB"), 'robocache.Cache("ram", budget="8GiB")'),
        (lambda: robocache.Loader(h264, cache="device"), "robocache.Device("),
        (lambda: robocache.Loader(h264, device=device(decode="gpu")), "robocache.Device("),
        (
            lambda: robocache.Loader(
                h264, order=robocache.Order(drop_n_first_frames=-1), batch_size=2
            ),
            "order=robocache.Order(drop_n_first_frames=…): expected 0 or more",
        ),
        (
            lambda: robocache.Loader([h264, h264], mixture=robocache.Mixture(epoch_size=2**60)),
            "mixture=robocache.Mixture(epoch_size=…)",
        ),
    ):
        with pytest.raises(robocache.Error) as e:
            make()
        assert text in str(e.value), str(e.value)
        assert groups_in(str(e.value))


def test_align_of_verbs(recording, tmp_path):
    """A verb accepts the group that its hints name."""
    hint = next(f.hint for f in robocache.doctor(recording).findings if f.code == "look-ahead")
    preset = re.search(r"align=\"(\w+)\"", hint)[1]
    short = robocache.Align(modes={"observation.joints": "linear"}, delay=0.001, causal=True)
    hint = next(
        f.hint
        for f in robocache.causality(recording, hz=30, align=short).findings
        if f.code == "delay-too-short"
    )
    group = eval(hint.removeprefix("Pass align="), {"robocache": robocache})  # noqa: S307
    for name, align in {"preset": preset, "group": group}.items():
        made = robocache.convert(recording, tmp_path / name, hz=30, align=align)
        assert made.num_episodes == 2
        assert not [f for f in made.findings if f.code == "look-ahead"]


def test_options_of_verbs(recording):
    # the same option as in robocache.open and in hints
    found = robocache.inspect(recording, options={"clock": "log"})
    assert found.num_episodes == robocache.open(recording, options={"clock": "log"}).num_episodes


def test_damaged_video(h264, tmp_path):
    path = shutil.copytree(h264, tmp_path / "set")
    video = sorted(path.glob("videos/*/chunk-000/file-000.mp4"))[0]
    video.write_bytes(video.read_bytes()[: video.stat().st_size * 2 // 3])
    with pytest.raises(robocache.Malformed) as e:
        for _ in robocache.Loader(path, batch_size=16):
            pass
    assert f'robocache.doctor("{path}", decode=True)' in e.value.hint
