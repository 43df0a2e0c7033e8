"""Display in notebooks, random splits, and edits from Python."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import robocache
from conftest import synth

HOSTILE = "<img src=x onerror=alert(1)>&\"'</table><script>alert(2)</script>"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        assert not [a for a, _ in attrs if a.startswith("on") or a in ("href", "src")]


def shown(x: object) -> str:
    text = x._repr_html_()  # type: ignore[attr-defined]
    assert len(text.encode()) <= 50_000
    p = Tags()
    p.feed(text)
    assert p.seen <= {
        "div",
        "strong",
        "table",
        "tr",
        "th",
        "td",
        "br",
        "svg",
        "rect",
        "polyline",
    }, p.seen
    return text


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a set with many features, whose texts and names need escaping in HTML."""
    path = tmp_path_factory.mktemp("notebook") / "set"
    features = {
        f"f{i} {HOSTILE.replace('/', '')}": {
            "dtype": "float32",
            "shape": (30,),
            "names": [HOSTILE] * 30,
        }
        for i in range(150)
    }
    with robocache.Writer(
        path, 10, {**features, "x": {"dtype": "float32", "shape": (2,)}}, allow_nan=["x"]
    ) as w:
        for e in range(10):
            for k in range(5 + e):
                w.add_frame(
                    {
                        **{key: np.zeros(30, np.float32) for key in features},
                        "x": [k, np.nan if k == 2 else -k],
                    },
                    task=f"{HOSTILE} {e % 3} \ud7ff",
                )
            w.save_episode()
    return path


def test_html_is_small_and_escaped(hostile: Path, exact: str, h264: str) -> None:
    for path in (hostile, exact, h264):
        ds = robocache.open(path)
        assert "polyline" in shown(ds.episode(0).streams["x" if path is hostile else "action"])
        text = shown(ds)
        assert "episodes" in text and (path is hostile or "<rect" in text)
        shown(ds.episode(0))
        shown(next(iter(ds.episode(0).streams.values())))
    assert "&lt;img" in shown(robocache.open(hostile).episode(0))
    with robocache.Loader(h264, batch_size=4) as loader:
        next(iter(loader))
        assert "<td" in shown(loader.stats()) and isinstance(loader.stats(), dict)


def test_html_of_what_cannot_be_read(tmp_path: Path, hostile: Path) -> None:
    import shutil

    shutil.copytree(hostile, tmp_path / "set")
    ds = robocache.open(tmp_path / "set")
    for f in (tmp_path / "set").glob("data/*/*.parquet"):
        f.write_bytes(b"PAR1 nothing")
    assert (
        "Malformed" in shown(ds.episode(0))
        or "Error" in shown(ds.episode(0))
        or shown(ds.episode(0))
    )


def test_html_decodes_nothing(h264: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from robocache.dataset import Stream

    monkeypatch.setattr(Stream, "frames", lambda *a, **k: pytest.fail("decoded"))
    ds = robocache.open(h264)
    shown(ds), shown(ds.episode(0)), [shown(s) for s in ds.episode(0).streams.values()]


def test_thumbnails(h264: str) -> None:
    from PIL import Image
    import io

    ep = robocache.open(h264).episode(0)
    t = ep.thumbnails(8, height=48)
    assert t.shape[0] == 8 and t.shape[1] == 48 and t.shape[3] == 3 and t.dtype == np.uint8
    img = Image.open(io.BytesIO(t._repr_png_()))
    assert img.size == (8 * t.shape[2], 48)
    np.testing.assert_array_equal(np.asarray(img)[:, : t.shape[2]], np.asarray(t[0]))
    s = ep.streams["observation.images.cam_high"]
    np.testing.assert_array_equal(
        t[7], s.frames([len(s) - 1], image_size=t.shape[1:3])[0].transpose(1, 2, 0)
    )
    one = robocache.open(h264).thumbnail(1)
    assert one.ndim == 3 and Image.open(io.BytesIO(one._repr_png_())).size[1] == one.shape[0]
    with pytest.raises(robocache.Misuse, match="did you mean"):
        ep.thumbnails(2, "observation.images.cam_hig")


def test_thumbnails_without_a_camera(hostile: Path) -> None:
    with pytest.raises(robocache.Unsupported, match="no camera"):
        robocache.open(hostile).thumbnail(0)


def test_plot(exact: str, hostile: Path) -> None:
    mpl = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    ep = robocache.open(exact).episode(1)
    figure = ep.plot(keys=["action", "observation.state"])
    assert len(figure.axes) == 2
    line = figure.axes[0].lines[3]
    s = ep.streams["action"]
    np.testing.assert_allclose(line.get_xdata(), (s.times - s.times[0]) / 1e9)
    np.testing.assert_array_equal(line.get_ydata(), s.values[:, 3])
    _, ax = plt.subplots()
    assert ep.plot("action", ax=ax) is ax and len(ax.lines) == s.values.shape[1]
    assert robocache.open(exact).plot().axes
    figure = robocache.open(hostile).episode(0).plot(keys=["x"])
    figure.savefig("/dev/null", format="svg")
    with pytest.raises(robocache.Misuse, match="numbers are plotted"):
        ep.plot(next(k for k, f in ep.dataset.features.items() if f.kind == "video"))
    plt.close("all")


def test_plot_without_matplotlib(script, exact: str) -> None:  # type: ignore[no-untyped-def]
    done = script(
        """
        import sys; sys.modules["matplotlib"] = None
        import robocache
        for f in (lambda: robocache.open(sys.argv[1]).episode(0).plot(), lambda: robocache.open(sys.argv[1]).plot()):
            try: f()
            except robocache.Unsupported as e: print(e.hint)
        """,
        exact,
    )
    assert done.stdout.count("pip install matplotlib") == 2, done.stderr


def test_random_split(hostile: Path, tmp_path: Path) -> None:
    ds = robocache.open(hostile)
    train, val = ds.random_split(0.8, seed=3)
    assert (train.num_episodes, val.num_episodes) == (8, 2)
    index = sorted([e.index for e in train] + [e.index for e in val])
    assert index == list(range(10)) and sum(train.episodes["lengths"]) == train.num_frames
    again, _ = robocache.open(hostile).random_split(0.8, seed=3)
    other, _ = ds.random_split(0.8, seed=4)
    assert [e.index for e in again] == [e.index for e in train] != [e.index for e in other]
    np.testing.assert_array_equal(
        val[0].streams["x"].values, ds.episode(val[0].index).streams["x"].values
    )
    a, b, c = ds.random_split((5, 3, 2), seed=0)
    assert [d.num_episodes for d in (a, b, c)] == [5, 3, 2]
    with robocache.Loader(
        val, batch_size=2, keys=["x"], order=robocache.Order(on_nan="allow")
    ) as loader:
        assert sum(len(x["x"]) for x in loader) == val.num_frames
    import pickle

    assert pickle.loads(pickle.dumps(val)).num_episodes == 2
    deeper, _ = train.random_split(0.5, seed=0)
    assert {e.index for e in deeper} <= {e.index for e in train}
    by_task = ds.random_split((0.5, 0.5), stratify="task")
    assert sum(d.num_episodes for d in by_task) == 10
    with pytest.raises(robocache.Misuse, match="no episode is left"):
        ds.random_split(0.99)
    with pytest.raises(robocache.Misuse, match="by"):
        ds.random_split(0.5, by="row")
    # the same as `robocache edit split`
    r = ds.edit().split({"train": 0.8, "val": 0.2}, seed=3).write(tmp_path / "parts")
    assert [p.num_episodes for p in r.parts] == [8, 2]
    np.testing.assert_array_equal(
        robocache.open(tmp_path / "parts" / "train").episodes["lengths"], train.episodes["lengths"]
    )


def test_edit(tmp_path: Path) -> None:
    src = synth(
        tmp_path / "src", "--episodes", "4", "--seconds", "1", "--cameras", "1", "--size", "64x64"
    )
    ds = robocache.open(src)
    camera = next(k for k, f in ds.features.items() if f.kind == "video")
    n = ds.num_frames
    extra = np.arange(sum(ds.episodes["lengths"][[0, 1, 3]]), dtype=np.float32)
    e = (
        ds.edit()
        .delete([2])
        .rename({"action": "command"})
        .add("extra", extra)
        .set_task("tidy up", episodes=[0])
    )
    plan = e.plan()
    assert (
        plan.dry_run
        and plan.num_episodes == 3
        and plan.plan["episodes"]
        and not (tmp_path / "out").exists()
    )
    done = e.write(tmp_path / "out")
    assert done.num_episodes == 3 and done.video["copied"] == 3 and isinstance(done.findings, list)
    out = robocache.open(tmp_path / "out")
    assert (
        out.episode(0).tasks == ["tidy up"]
        and "command" in out.features
        and "action" not in out.features
    )
    np.testing.assert_array_equal(
        out.episode(2).streams["command"].values, ds.episode(3).streams["action"].values
    )
    np.testing.assert_array_equal(
        out.episode(2).streams[camera].values, ds.episode(3).streams[camera].values
    )
    np.testing.assert_array_equal(
        out.episode(0).streams["extra"].values.ravel(), extra[: len(out.episode(0))]
    )
    assert ds.num_frames == n and not robocache.doctor(tmp_path / "out").errors
    kept = robocache.edit.keep(src, tmp_path / "kept", where="index < 2")
    assert kept.num_episodes == 2
    short = robocache.edit.trim(ds, tmp_path / "short", "5r", "-5r")
    assert short.num_frames == n - 40
    both = robocache.merge([tmp_path / "kept", tmp_path / "short"]).write(tmp_path / "both")
    assert both.num_episodes == 6
    done = robocache.edit.delete(tmp_path / "kept", episodes=0, in_place=True)
    assert done.undo and robocache.open(tmp_path / "kept").num_episodes == 1
    assert (
        "as it was" in robocache.edit.undo(tmp_path / "kept")
        and robocache.open(tmp_path / "kept").num_episodes == 2
    )
    assert robocache.edit.recover(tmp_path / "kept") == "no interrupted edit"
    with pytest.raises(robocache.NotFound, match="no edit in place"):
        robocache.edit.undo(tmp_path / "kept")
    small = robocache.edit.resize(
        tmp_path / "kept", tmp_path / "small", size=(96, 128), codec="h264", crf=10
    )
    assert robocache.open(tmp_path / "small").episode(0).streams[camera].values.shape == (
        30,
        3,
        96,
        128,
    )
    psnr = small.video["psnr"][camera]
    assert psnr["frames"] == 60 and 30 < psnr["min"] <= psnr["mean"], psnr
    for error, match, wrong in (
        (robocache.Misuse, "no such episode", lambda: ds.edit().delete([9]).plan()),
        (robocache.Misuse, "none are named", lambda: ds.edit().set_task("x", episodes=[])),
        (robocache.Misuse, "where is empty", lambda: ds.edit().trim(0.1, where="")),
        (robocache.Misuse, "lies in the other", lambda: ds.edit().delete([1]).write(src / "x")),
        (robocache.Misuse, "not empty", lambda: ds.edit().delete([1]).write(tmp_path / "out")),
        (robocache.Misuse, "seconds are floats", lambda: ds.edit().trim(1)),
        (robocache.Misuse, "no destination", lambda: ds.edit().delete([1]).write()),
        (robocache.Misuse, "no verb", lambda: ds.edit().write(tmp_path / "x")),
    ):
        with pytest.raises(error, match=match):
            wrong()
    assert re.search(r"episodes", robocache.edit.delete.__doc__ or "")


def test_view(exact: str, tmp_path: Path) -> None:
    import urllib.error
    import urllib.request

    with robocache.open(exact).view(flags=tmp_path / "flags.json") as page:
        base, token = page.url.split("#token=")
        assert page.url in page._repr_html_()
        ask = urllib.request.Request(
            base + "api/episodes", headers={"Authorization": f"Bearer {token}"}
        )
        assert urllib.request.urlopen(ask, timeout=30).status == 200
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(base + "api/episodes", timeout=30)
        process = page._process
    assert process.poll() is not None
    ds = robocache.open(exact)
    with pytest.raises(robocache.NotFound):
        ds.view(tmp_path / "nothing")
    with pytest.raises(robocache.Unsupported, match="episodes"):
        ds.random_split(0.5)[0].view()
