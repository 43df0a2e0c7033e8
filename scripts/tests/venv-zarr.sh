#!/usr/bin/env bash
# Makes .venv-zarr: Python with the zarr and numcodecs versions that diffusion_policy pins, the
# reference reader for files of format/zarr. These versions need an older Python and NumPy than
# .venv has. Without this environment the test skips.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ -x .venv-zarr/bin/python ] && .venv-zarr/bin/python -c 'import zarr, numcodecs' 2>/dev/null; then exit 0; fi
make_with() { # make_with REQUIREMENTS PYTHON…: uses the first Python that works
  local pins=$1; shift
  for c in "$@"; do
    if "$c" -c 'import sys, venv, ensurepip' >/dev/null 2>&1; then
      echo "venv-zarr: $("$c" --version), $pins -> .venv-zarr"
      "$c" -m venv .venv-zarr
      exec .venv-zarr/bin/python -m pip install -q --disable-pip-version-check --only-binary numcodecs,numpy -r "python/$pins"
    fi
  done
}
# numcodecs 0.10.2 has wheels up to Python 3.10.
versions="${PYENV_ROOT:-$HOME/.pyenv}"/versions
make_with requirements-zarr.txt python3.10 "$versions"/3.10*/bin/python3 python3.9 "$versions"/3.9*/bin/python3 python3.8 "$versions"/3.8*/bin/python3
echo "venv-zarr: no Python 3.8 to 3.10, for which the pinned versions have wheels; using a later numcodecs that also rejects frames without a content size"
make_with requirements-zarr-311.txt python3.12 "$versions"/3.12*/bin/python3 python3.11 "$versions"/3.11*/bin/python3
echo "venv-zarr: no working Python 3.8 to 3.12 with venv and pip" >&2
exit 1
