"""The command line in the package, and its verbs as functions."""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import HERE

import robocache


def command(*args: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    return subprocess.run(
        [sys.executable, "-m", "robocache", *args],
        env=env,
        text=True,
        capture_output=True,
        timeout=300,
        **kwargs,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Creates a small set without video with the package's command line.

    Neither Go nor ffmpeg is needed.
    """
    path = tmp_path_factory.mktemp("verbs") / "made"
    done = command("synth", str(path), "--codec", "png", "--episodes", "3", "--seconds", "1")
    assert done.returncode == 0, done.stderr
    return str(path)


@pytest.fixture(scope="module")
def broken(made: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns the same set with a wrong number of frames in its metadata."""
    import shutil

    path = tmp_path_factory.mktemp("verbs") / "broken"
    shutil.copytree(made, path)
    info = path / "meta" / "info.json"
    text = json.loads(info.read_text())
    info.write_text(json.dumps({**text, "total_frames": text["total_frames"] + 7}))
    return str(path)


def test_command(made: str, broken: str, tmp_path: Path) -> None:
    assert command("--version").stdout.startswith("robocache version ")
    assert "Available Commands" in command("--help").stdout
    shown = command("inspect", made, "--json")
    assert shown.returncode == 0 and json.loads(shown.stdout) == robocache.inspect(made)
    for code, says, args in (
        (2, "unknown flag", ["doctor", made, "--nope"]),
        (3, "", ["doctor", broken]),
        (10, "nothing", ["inspect", str(tmp_path / "nothing")]),
        (0, "", ["doctor", made]),
    ):
        done = command(*args)
        assert done.returncode == code and says in done.stderr, (args, done)


def test_command_without_the_engine(tmp_path: Path) -> None:
    env = {
        **os.environ,
        "PYTHONPATH": str(HERE.parent),
        "ROBOCACHE_LIBRARY": str(tmp_path / "none.so"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "robocache", "version"], env=env, text=True, capture_output=True
    )
    assert (
        done.returncode == 1 and done.stderr.startswith("robocache: ") and "make lib" in done.stderr
    )


def test_command_closed_pipe(made: str) -> None:
    """If the reader of a pipe goes away, the process ends like other programs.

    Python ignores SIGPIPE, so the package must restore it.
    """
    env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    with subprocess.Popen(
        [sys.executable, "-m", "robocache", "inspect", made],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as p:
        assert p.stdout is not None
        p.stdout.close()
        assert p.wait(300) == -signal.SIGPIPE


def interrupt(process: subprocess.Popen[str], dst: Path) -> tuple[str, str]:
    """Sends SIGINT when dst contains a file, and returns the output."""
    while process.poll() is None and not (
        dst.exists() and any(p.is_file() for p in dst.rglob("*"))
    ):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=300)


@pytest.mark.parametrize("way", ["function", "command"])
def test_interrupted(exact: str, tmp_path: Path, way: str) -> None:
    """A conversion that encodes stops at once and leaves no partial output."""
    import shutil

    if shutil.which("ffmpeg") is None:
        pytest.skip("no ffmpeg to encode with")
    dst = tmp_path / "dst"
    run = (
        "import robocache, sys\ntry: robocache.convert(*sys.argv[1:], video_codec='h264', "
        "crf=1)\nexcept KeyboardInterrupt: print('interrupted')"
    )
    args = (
        [sys.executable, "-c", run, exact, str(dst)]
        if way == "function"
        else [
            sys.executable,
            "-m",
            "robocache",
            "convert",
            exact,
            str(dst),
            "--video-codec",
            "h264",
            "--crf",
            "1",
        ]
    )
    env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    # SIGINT is ignored in background jobs of a shell, and children inherit this.
    heard = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    with subprocess.Popen(
        args, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heard
    ) as p:
        out, err = interrupt(p, dst)
    assert (
        (out == "interrupted\n" and p.returncode == 0) if way == "function" else p.returncode == 130
    ), (p.returncode, out, err)
    assert not [f for f in dst.rglob("*") if f.is_file()]


def test_inspect(made: str) -> None:
    r = robocache.inspect(made)
    assert (
        r.format == "lerobot"
        and r["num_episodes"] == r.num_episodes == 3
        and r.splits == {"train": "0:3"}
    )
    assert r.streams[0].key == "observation.state" and r.streams[0].codec is None
    with pytest.raises(AttributeError, match="did you mean 'streams'"):
        r.stream  # noqa: B018
    assert not hasattr(r, "__deepcopy__") and pickle.loads(pickle.dumps(r)) == r == json.loads(
        json.dumps(r)
    )
    assert "num_frames" in dir(r) and repr(r).startswith("Report({")
    one = robocache.inspect(made, episode=2)
    assert one.position == 2 and one.streams[0].rows == one.length and one.streams[0].gaps == 0
    assert robocache.inspect(Path(made), episode=0).position == 0
    assert robocache.inspect(made, suggest_map=True).startswith("# A mapping of")


def test_doctor(made: str, broken: str) -> None:
    assert robocache.doctor(made).findings == [] and robocache.doctor(made, decode=True).errors == 0
    r = robocache.doctor(broken)
    assert r.errors + r.warnings == len([f for f in r.findings if f.severity != "info"]) > 0
    assert r.findings[0].code and r.findings[0].message and r.findings[0].count is None
    assert robocache.doctor(made, episodes=range(2)).num_episodes == 3


def test_stats(made: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    want = robocache.open(made).compute_stats(["action"])
    got = robocache.stats(made, keys=["action"], frames="none")
    assert list(got) == ["action"] and got["action"].keys() == want["action"].keys()
    for k, v in want["action"].items():
        assert got["action"][k].dtype == v.dtype and np.array_equal(got["action"][k], v), k
    with caplog.at_level(logging.INFO, "robocache"):
        robocache.stats(made, keys="action", frames="none", out=tmp_path / "stats.json")
    assert (
        "action" in json.loads((tmp_path / "stats.json").read_text())
        and "wrote stats.json" in caplog.text
    )
    robocache.Loader(
        made, normalize="mean_std", statistics=robocache.Statistics(values=robocache.stats(made))
    ).close()


def test_convert(made: str, tmp_path: Path) -> None:
    r = robocache.convert(made, tmp_path / "part", episodes=[0, 2])
    assert (
        r.num_episodes == 2
        and [e["old_episode_index"] for e in r.episodes] == [0, 2]
        and r.dry_run is None
    )
    assert robocache.open(tmp_path / "part").num_episodes == 2
    r = robocache.convert(made, tmp_path / "part.mcap", to="mcap")
    assert (
        r.bytes > 0
        and r.source_format is None
        and robocache.open(tmp_path / "part.mcap").num_episodes == 3
    )
    r = robocache.convert(made, tmp_path / "never", align={"hz": 10, "max_gap": 0.5}, dry_run=True)
    assert r.dry_run and r.aligned and r.fps == 10 and not (tmp_path / "never").exists()


def test_map(made: str) -> None:
    """map= is a mapping in robocache.open and in the verbs. On the command line it is a file."""
    mapping = {"streams": {"command": {"from": ["action"]}}}
    assert "command" in robocache.open(made, map=mapping).features
    assert "command" in [s.key for s in robocache.inspect(made, map=mapping).streams]


@pytest.mark.parametrize(
    "call,error,says",
    [
        (lambda p: robocache.doctor(p, decod=True), robocache.Misuse, "did you mean 'decode'"),
        (lambda p: robocache.doctor(p, json=True), robocache.Misuse, "unknown option 'json'"),
        (
            lambda p: robocache.convert(p, p + "x", **{"video-codec": "h264"}),
            robocache.Misuse,
            "did you mean 'video_codec'",
        ),
        (
            lambda p: robocache.doctor(p, decode=3),
            robocache.Misuse,
            "decode=3: expected true or false",
        ),
        (lambda p: robocache.doctor(p, episodes=True), robocache.Misuse, "expected a value"),
        (lambda p: robocache.convert(p, p + "x", episodes=[]), robocache.Misuse, "at least one"),
        (lambda p: robocache.doctor(p, format=object()), robocache.Misuse, "cannot be a object"),
        (lambda p: robocache.doctor(p + "/nope"), robocache.NotFound, "nope"),
        (lambda p: robocache.inspect(p, episode=99), robocache.Misuse, "The dataset has 0-2"),
        (lambda p: robocache.stats(p, frames="some"), robocache.Misuse, "sampled, all or none"),
        (
            lambda p: robocache.convert(p, p + "x", hz=10, fps=10),
            robocache.Misuse,
            "misuse: hz says .* fps another name",
        ),
        (lambda p: robocache.convert(p, p), robocache.Misuse, "the source .* one folder"),
        (lambda p: robocache.convert(p, p + "x", to="avi"), robocache.Error, "avi"),
        (lambda p: robocache.inspect(3), robocache.Misuse, "expected a path or URI"),
    ],
)
def test_refused(made: str, call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call(made)


def test_help_names_what_is_there() -> None:
    import re

    text = robocache.__doc__ or ""
    ten = re.findall(r"^    (\w+) {2,}\S", text, re.MULTILINE)
    assert len(ten) == 10 and all(n in robocache.__all__ for n in ten)
    names = {
        *re.findall(r"robocache\.([A-Za-z_]\w*)", text),
        "LeRobotDatasetMetadata",
        "fuse",
        "voxelize",
        "depth_to_points",
        "tsdf_integrate",
        "self_test",
        "check_installation",
        "datasets",
        "stats",
    }
    assert all(n in text and hasattr(robocache, n) for n in names)
    assert all(n in text for n in ("Loader", "doctor", "convert", "resample", ".hint"))


def test_names() -> None:
    """The verbs are functions, and no submodule of the same name replaces them."""
    import robocache.compat
    import robocache.datasets

    for name in ("inspect", "doctor", "convert", "stats"):
        assert callable(getattr(robocache, name)) and name in robocache.__all__
        assert (
            not (HERE.parent / "robocache" / f"{name}.py").exists()
            and "Ctrl-C" in getattr(robocache, name).__doc__
        )
