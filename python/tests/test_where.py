"""where= of Loader, MapDataset and Mix."""

from __future__ import annotations

import numpy as np
import pytest
import robocache
from conftest import synth
from robocache import Loader, MapDataset, Mix


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("arm") / "set"
    return str(synth(path, "--episodes", "4", "--seconds", "0.6", "--cameras", "2"))


def test_where_is_the_list_of_its_episodes(arm: str) -> None:
    ds = robocache.open(arm)
    values = [ds[e].streams["action"].values[:, 0].max() for e in range(4)]
    limit = float(np.sort(values)[1:3].mean())
    channel = ds.features["action"].names[0] if ds.features["action"].names else 0
    where = f"max(action[{channel}]) > {limit}"
    chosen = [e for e in range(4) if values[e] > limit]
    assert 0 < len(chosen) < 4
    keys = ["index", "episode_index"]
    by_list = Loader(arm, episodes=chosen, keys=keys, seed=2)
    by_where = Loader(arm, where=where, keys=keys, seed=2)
    assert list(by_where.order(0)) == list(by_list.order(0))
    by_where.load_state_dict(by_list.state_dict())
    assert len(MapDataset(arm, where=where, keys=keys)) == len(by_list.dataset)
    within = MapDataset(arm, where=where, keys=keys, episodes=chosen[:1])
    assert {int(x["episode_index"]) for x in within} == set(chosen[:1])
    mixed = Loader([Mix(arm, where=where), Mix(arm, where="index == 0", name="b")], keys=keys)
    seen = [b[k] for b in mixed for k in ("dataset_index", "episode_index")]
    sources, episodes = np.concatenate(seen[::2]), np.concatenate(seen[1::2])
    assert set(episodes[sources == 0].tolist()) == set(chosen)
    assert set(episodes[sources == 1].tolist()) == {0}


def test_where_without_episodes_or_a_table(arm: str) -> None:
    with pytest.raises(robocache.Misuse, match="none of 4 episodes"):
        Loader(arm, where="length < 0")
    with pytest.raises(robocache.NotFound, match="quality"):
        Loader(arm, where="q.idle < 0.3")


def test_sources_have_their_own_filter(arm: str) -> None:
    camera = [k for k, f in robocache.open(arm).features.items() if f.kind == "video"][0]
    filters = robocache.Images(size=(24, 32), filter="cv2-area")
    steps = robocache.Images(transform=[{"letterbox": True}, {"resize": (24, 32)}])
    sources = [Mix(arm, images=filters, name="a"), Mix(arm, images=steps, name="b")]
    batch = next(iter(Loader(sources, keys=[camera, "index"], batch_size=16)))
    for source, images in enumerate((filters, steps)):
        of = np.flatnonzero(np.asarray(batch["dataset_index"]) == source)
        alone = MapDataset(arm, keys=[camera], images=images)
        for i in of:
            want = alone[int(batch["index"][i])][camera]
            assert np.array_equal(batch[camera][i], want)
