"""Serves the page of `robocache view` from a child process."""

from __future__ import annotations

import html
import json
import os
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any

from . import _errors
from ._errors import Error, Unsupported

_CLASSES = {
    2: _errors.Misuse,
    10: _errors.NotFound,
    11: _errors.Malformed,
    12: _errors.Unsupported,
    13: _errors.ResourceLimit,
    70: _errors.Internal,
    75: _errors.Temporary,
}


class View:
    """A page that is served until close() or until this process ends.

    The page is served with an access token in its URL: any holder of the URL can read the dataset.

    Attributes:
        url: The URL of the page, with the token.
    """

    url: str

    def __init__(self, args: list[str]) -> None:
        # The new process must import this package, also if it is not installed.
        package_folder = str(Path(__file__).resolve().parents[1])
        python_path = [package_folder, os.environ.get("PYTHONPATH")]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, python_path))}
        with tempfile.TemporaryFile() as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "robocache", "view", "--json", *args],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
            self._finalizer = weakref.finalize(self, _end_process, self._process)
            line = self._process.stdout.readline()  # type: ignore[union-attr]
            if not line:
                code = self._process.wait()
                errors.seek(0)
                text = errors.read().decode(errors="replace").strip()
                # A message of several lines (the stack of an internal error) is kept whole.
                message = text.rpartition("robocache: ")[2] or f"the page ended with code {code}"
                raise _CLASSES.get(code, Error)(message)
        self.url = json.loads(line)["url"]

    def close(self) -> None:
        """Stops serving the page."""
        self._finalizer()

    def __enter__(self) -> View:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        url = html.escape(self.url)
        return f'<a href="{url}" target="_blank" rel="noreferrer">{url}</a>'

    def __repr__(self) -> str:
        return f"<robocache.View {self.url}>"


def _end_process(p: subprocess.Popen[bytes]) -> None:
    """Terminates a process, and kills it if it still runs after 10 seconds."""
    p.terminate()
    try:
        p.wait(10)
    except subprocess.TimeoutExpired:
        p.kill()
        p.wait()
    if p.stdout is not None:
        p.stdout.close()


def open_flags(opened: dict[str, Any]) -> list[str]:
    """Returns the command line flags that open a dataset as it was opened in Python."""
    for name in ("episodes", "map", "options", "depth_unit"):
        if opened.get(name):
            raise Unsupported(
                f"the page of a dataset that was opened with {name} is not served from here",
                hint="open the dataset as a whole, or use `robocache view`",
            )
    out = [
        f"--{name.replace('_', '-')}={opened[name]}"
        for name in ("format", "rows_hz", "split", "recording_index")
        if opened.get(name)
    ]
    return [*out, *(["--follow-links"] if opened.get("follow_links") else [])]
