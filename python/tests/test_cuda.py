"""Batches on a CUDA device. Without one these tests skip; docs/gpu holds the output of a run on one.

Alone, on a machine with a GPU and this package: python python/tests/test_cuda.py PATH_OF_A_DATASET
"""

import os
import pathlib
import sys
import time

import pytest

torch = pytest.importorskip("torch")

import robocache  # noqa: E402

PATH = os.environ.get("ROBOCACHE_CUDA_SET") or str(
    pathlib.Path(os.environ.get("ROBOCACHE_TESTDATA", pathlib.Path(__file__).parents[2].parent / "shared" / "data")) / "g1_h264_v30"
)

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device"),
    pytest.mark.skipif(not pathlib.Path(PATH).exists(), reason=f"no dataset at {PATH}"),
]


def epoch(**kw):
    with robocache.Loader(PATH, batch_size=32, seed=3, **kw) as loader:
        return [dict(b) for b in loader]


@pytest.mark.parametrize("pin", [False, True])
def test_cuda_equals_cpu(pin):
    want = epoch()
    # All batches are kept: nothing may write to one after it was given.
    got = epoch(device="cuda", pin_memory=pin)
    assert len(want) == len(got)
    for a, b in zip(want, got):
        assert list(a) == list(b)
        for k, v in a.items():
            if isinstance(v, list):
                assert v == b[k]
            else:
                assert b[k].is_cuda and b[k].dtype == v.dtype and torch.equal(b[k].cpu(), v), k


def test_pinned_on_the_host():
    for b in epoch(pin_memory=True)[:2]:
        assert all(v.is_pinned() for v in b.values() if not isinstance(v, list))


def test_side_stream():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        got = epoch(device="cuda", pin_memory=True)
    stream.synchronize()
    for a, b in zip(epoch(), got):
        assert all(torch.equal(b[k].cpu(), v) for k, v in a.items() if not isinstance(v, list))


def rates():
    for kw in ({}, {"device": "cuda"}, {"device": "cuda", "pin_memory": True}):
        with robocache.Loader(PATH, batch_size=32, seed=3, **kw) as loader:
            for _ in loader:
                pass
            start, n = time.perf_counter(), 0
            for _ in range(3):
                for b in loader:
                    n += len(b["index"])
            torch.cuda.synchronize()
            print(f"{kw or 'cpu'}: {n / (time.perf_counter() - start):.0f} samples/s, {loader.stats()['wait_data_seconds']:.2f} s waited for data")


if __name__ == "__main__":
    PATH = sys.argv[1]
    print(torch.__version__, torch.cuda.get_device_name(), robocache.versions())
    for pin in (False, True):
        test_cuda_equals_cpu(pin)
        print("equal to the CPU's batches, pin_memory =", pin)
    test_pinned_on_the_host()
    test_side_stream()
    print("pinned; side stream: ok")
    rates()
