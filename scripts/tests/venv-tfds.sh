#!/usr/bin/env bash
# Makes .venv-tfds: Python with tensorflow-datasets, the reference reader of format/rlds and the
# peer of its benchmark. TensorFlow is large (1.8 GB) and pins versions that conflict with .venv, so
# it has its own environment. Without it the tests skip.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ -x .venv-tfds/bin/python ] && .venv-tfds/bin/python -c 'import importlib.util as u, sys; sys.exit(not (u.find_spec("tensorflow") and u.find_spec("tensorflow_datasets")))'; then exit 0; fi
# TensorFlow has wheels for 3.10 to 3.13.
for c in python3.12 python3.11 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[123]*/bin/python3 python3.10 python3; do
  if "$c" -c 'import sys, venv, ensurepip; sys.exit(not ((3, 10) <= sys.version_info[:2] <= (3, 13)))' >/dev/null 2>&1; then
    echo "venv-tfds: $("$c" --version) -> .venv-tfds"
    "$c" -m venv .venv-tfds
    exec .venv-tfds/bin/python -m pip install -q --disable-pip-version-check -r python/requirements-tfds.txt
  fi
done
echo "venv-tfds: no working Python 3.10 to 3.13 with venv and pip" >&2
exit 1
