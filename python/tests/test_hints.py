"""Hints name options as keywords in Python, and as flags on the command line of the same package."""

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
    """A recording with two clocks."""
    path = tmp_path_factory.mktemp("hints") / "recording"
    args = ["--format", "mcap", "--cameras", "0", "--rates", "camera=30,joints=100", "--episodes", "2", "--seconds", "3"]
    subprocess.run([*COMMAND, "synth", str(path), *args], check=True, capture_output=True)
    return path


def test_hints_of_findings(recording, tmp_path):
    hints = [f.hint for f in robocache.doctor(recording).findings if f.hint]
    hints += [f.hint for f in robocache.convert(recording, tmp_path / "set", hz=30).findings if f.hint]
    assert any("align=robocache.Align(modes={" in h for h in hints), hints
    assert not [h for h in hints if re.search(r"(^|\s)--[a-z]|in Python|robocache (convert|doctor)\b", h)]
    ran = subprocess.run([*COMMAND, "doctor", str(recording)], capture_output=True, text=True)
    assert """robocache convert --align '{"modes": {""" in ran.stdout and "align=" not in ran.stdout, ran.stdout


def test_hints_of_errors(recording):
    with pytest.raises(robocache.Misuse) as e:
        robocache.open(recording, rows_hz=30)  # its rows have timestamps
    assert "hz= resamples" in e.value.hint and "--" not in e.value.hint
    ran = subprocess.run([*COMMAND, "inspect", str(recording), "--rows-hz", "30"], capture_output=True, text=True)
    assert ran.returncode == 2 and "leave it out; --hz resamples" in ran.stderr, ran.stderr


def test_hints_name_fields_of_groups():
    """The table of hints_python.go has the groups and the fields of robocache.options."""
    text = (ROOT / "hints_python.go").read_text()
    places = re.findall(r'"(\w+)": +\{"(\w+)", "(\w+)", "(\w+)"\}', text)
    assert len(places) > 20
    for name, keyword, group, field in places:
        assert robocache.options.GROUPS[keyword].__name__ == group, name
        assert robocache.options.engine_name(keyword, field) == name
        assert field in [f.name for f in dataclasses.fields(robocache.options.GROUPS[keyword])], name


def test_align_of_verbs(recording, tmp_path):
    """A verb takes the group that its hints name."""
    hint = next(f.hint for f in robocache.doctor(recording).findings if f.hint and "robocache.Align(" in f.hint)
    group = eval(re.search(r"robocache\.Align\(.*?\}\)", hint)[0], {"robocache": robocache})  # noqa: S307
    made = robocache.convert(recording, tmp_path / "aligned", hz=30, align=group)
    assert made.num_episodes == 2


def test_options_of_verbs(recording):
    found = robocache.inspect(recording, options={"clock": "log"})  # as robocache.open and hints name it
    assert found.num_episodes == robocache.open(recording, options={"clock": "log"}).num_episodes


def test_damaged_video(h264, tmp_path):
    path = shutil.copytree(h264, tmp_path / "set")
    video = sorted(path.glob("videos/*/chunk-000/file-000.mp4"))[0]
    video.write_bytes(video.read_bytes()[: video.stat().st_size * 2 // 3])
    with pytest.raises(robocache.Malformed) as e:
        for _ in robocache.Loader(path, batch_size=16):
            pass
    assert f'robocache.doctor("{path}", decode=True)' in e.value.hint
