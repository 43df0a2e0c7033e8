"""The engine sees environment variables that Python sets, changes or removes after startup."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import robocache

Seen = list[tuple[str, str]]


@pytest.fixture
def server() -> Iterator[tuple[str, Seen]]:
    """Yields the address of a server without files, and its log of paths and Authorization."""
    seen: Seen = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            seen.append((self.path, self.headers.get("Authorization", "")))
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_HEAD = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_port}", seen
    http.shutdown()
    http.server_close()


def ask(uri: str) -> None:
    with pytest.raises(robocache.Error):
        robocache.open(uri)


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_s3(monkeypatch: pytest.MonkeyPatch, server: tuple[str, Seen], name: str) -> None:
    address, seen = server
    monkeypatch.setenv(name, address)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "first")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    ask("s3://bucket/set")
    assert seen and all("Credential=first/" in a and "/eu-north-1/" in a for _, a in seen), seen
    seen.clear()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "second")
    ask("s3://bucket/set")
    assert seen and all("Credential=second/" in a for _, a in seen), seen


def test_hub(monkeypatch: pytest.MonkeyPatch, server: tuple[str, Seen]) -> None:
    address, seen = server
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setenv("HF_TOKEN", "hf_later")
    ask("hf://datasets/owner/name")
    assert seen and all(a == "Bearer hf_later" for _, a in seen), seen
    seen.clear()
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    ask("hf://datasets/owner/name")
    assert seen and not any(a for _, a in seen), seen


def test_gs(monkeypatch: pytest.MonkeyPatch, server: tuple[str, Seen]) -> None:
    address, seen = server
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
    ask("gs://bucket/set")
    assert seen


def test_proxy(monkeypatch: pytest.MonkeyPatch, server: tuple[str, Seen]) -> None:
    address, seen = server
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", address)
    ask("http://robots.invalid/set")
    assert seen and all(path.startswith("http://robots.invalid/") for path, _ in seen), seen
    seen.clear()
    monkeypatch.delenv("http_proxy")
    monkeypatch.setenv("no_proxy", "*")
    ask(f"{address}/set")
    assert seen and not any(path.startswith("http://") for path, _ in seen), seen


def test_set_again_before_loading(server: tuple[str, Seen]) -> None:
    """A variable that is removed and set again before the engine is loaded has its last value."""
    address, seen = server
    script = (
        "import os\n"
        "address = os.environ.pop('AWS_ENDPOINT_URL')\n"
        "os.environ['AWS_ENDPOINT_URL'] = address\n"
        "import robocache\n"
        "try:\n"
        "    robocache.open('s3://bucket/set')\n"
        "except robocache.Error:\n"
        "    pass\n"
    )
    env = {
        **os.environ,
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "eu-north-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    subprocess.run([sys.executable, "-c", script], env=env, check=True, timeout=120)
    assert seen, "AWS_ENDPOINT_URL received no request"
