"""The command line, as `robocache ...` or `python -m robocache ...`.

The engine runs the command, with the same code as the program bin/robocache of a checkout.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from ._engine import current_engine
from ._errors import Error


def main() -> NoReturn:
    """Runs sys.argv and ends the process with one of the exit codes in docs/cli.md."""
    # Verbs that call Python use this one. The engine copies the environment when it is loaded.
    os.environ.setdefault("ROBOCACHE_PYTHON", sys.executable)
    try:
        run = current_engine().main
    except Error as e:
        sys.exit(f"robocache: {e}")
    sys.stdout.flush()
    sys.stderr.flush()
    # The engine's runtime has its own threads and signal handlers. Python's shutdown could only
    # conflict with them.
    os._exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
