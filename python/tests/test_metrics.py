"""Loader(metrics=) serves metrics in Prometheus's text format while the loader is open."""

import pickle
import re
import urllib.error
import urllib.request

import pytest
import robocache
from conftest import dataset_path as dataset


def scrape(address):
    text = urllib.request.urlopen(f"http://{address}/metrics", timeout=10).read().decode()
    return {k: float(v) for k, v in re.findall(r"^(robocache_\S+) (\S+)$", text, re.M)}


def test_metrics_are_the_stats():
    with robocache.Loader(
        dataset("g1_h264_v30"), batch_size=16, runtime=robocache.Runtime(metrics=":0")
    ) as loader:
        assert loader.metrics_address.startswith("127.0.0.1:")
        first = scrape(loader.metrics_address)
        assert first["robocache_loader_samples_total"] == 0
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        m, s = scrape(loader.metrics_address), loader.stats()
        assert m["robocache_loader_samples_total"] == s["samples"] == 48
        assert m["robocache_loader_batches_total"] == 3
        assert m["robocache_loader_memory_budget_bytes"] == s["memory"]["budget_bytes"]
        assert (
            0
            < m['robocache_loader_stage_seconds_total{stage="decode"}']
            <= loader.stats()["decode_seconds"]
        )
        assert (
            urllib.request.urlopen(f"http://{loader.metrics_address}/healthz", timeout=10).read()
            == b"ok\n"
        )
        # a copy has no server, because the port would be in use
        copy = pickle.loads(pickle.dumps(loader))
        assert copy.metrics_address is None
        copy.close()
        with pytest.raises(robocache.Misuse, match="local rank"):
            robocache.Loader(
                dataset("g1_h264_v30"), runtime=robocache.Runtime(metrics=loader.metrics_address)
            )
        address = loader.metrics_address
    with pytest.raises(urllib.error.URLError):
        scrape(address)


def test_metrics_addresses():
    for bad in ("9400", "nowhere.invalid:1", "127.0.0.1:99999"):
        with pytest.raises(robocache.Misuse):
            robocache.Loader(dataset("g1_h264_v30"), runtime=robocache.Runtime(metrics=bad))
    with robocache.Loader(dataset("g1_h264_v30")) as loader:
        assert loader.metrics_address is None
