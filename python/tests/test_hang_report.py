"""A command that does not end is reported with its stacks, and is killed."""

from __future__ import annotations

import os
import subprocess

import pytest
from conftest import run_program


@pytest.mark.slow
def test_report_of_a_hang() -> None:
    with pytest.raises(pytest.fail.Exception) as failed:
        run_program(["sleep", "987"], dict(os.environ), timeout=0.5)
    text = str(failed.value)
    assert "did not end in 0.5 s" in text and "nanosleep" in text, text
    assert not subprocess.run(["pgrep", "-f", "^sleep 987"], stdout=subprocess.PIPE).stdout


def test_output_of_a_command_that_ends() -> None:
    done = run_program(["bash", "-c", "echo out; echo err >&2; exit 3"], dict(os.environ))
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
