"""The command line: `robocache …`, `python -m robocache …`. It runs in the engine, as the program bin/robocache of a checkout."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from ._engine import engine
from ._errors import Error


def main() -> NoReturn:
    """Runs sys.argv, and ends the process with the exit code that docs/cli.md says."""
    try:
        run = engine().main
    except Error as e:
        sys.exit(f"robocache: {e}")
    sys.stdout.flush()
    sys.stderr.flush()
    # The engine's runtime has threads and signal handlers of its own: Python's way down would have
    # nothing to do but meet them.
    os._exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
