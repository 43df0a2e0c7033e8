#!/usr/bin/env bash
# Makes the project's Python environment, .venv.
#   venv.sh core    Python with torch and numpy, for the demo and our package
#   venv.sh demo    Python with numpy, for our package
#   venv.sh docs    the tools of `make docs`, in .build/docs instead of .venv
#   venv.sh peers   also lerobot and its decoders, the reference reader and peer of the tests; if they
#                   cannot be installed, reports it and continues
# Uses Python 3.12 if a working one is found, otherwise 3.10 or later.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-core}
mkdir -p .build

works() { "$@" -c 'import sys, venv, ensurepip; sys.exit(not (sys.version_info[:2] >= (3, 10)))' >/dev/null 2>&1; }
find_python() {
  local c
  # A shim of pyenv works only if its version is set, so the installed versions are tried directly.
  local pyenv_root=${PYENV_ROOT:-$HOME/.pyenv}
  for c in python3.12 "$pyenv_root"/versions/3.12*/bin/python3 /usr/bin/python3.12 /usr/local/bin/python3.12 \
    python3.11 "$pyenv_root"/versions/3.1[01]*/bin/python3 python3.10 python3.13 "$pyenv_root"/versions/3.13*/bin/python3 python3; do
    if works "$c"; then echo "$c"; return; fi
  done
  echo "venv: no working Python 3.10 or later with venv and pip" >&2
  return 1
}

if [ "$what" = docs ]; then
  if ! cmp -s python/requirements-docs.txt .build/docs/requirements.txt; then
    "$(find_python)" -m venv --clear .build/docs
    .build/docs/bin/python -m pip install -q --disable-pip-version-check -r python/requirements-docs.txt
    cp python/requirements-docs.txt .build/docs/requirements.txt
  fi
  exit 0
fi
if [ ! -x .venv/bin/python ]; then
  python=$(find_python)
  echo "venv: $($python --version) -> .venv"
  "$python" -m venv .venv
fi
# Makes the checkout's package available to .venv/bin/python without PYTHONPATH, after all installed
# packages. A linked .venv belongs to another checkout.
[ -L .venv ] || echo "$PWD/python" > "$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/robocache-checkout.pth"
if [ "$what" = demo ]; then
  .venv/bin/python -c 'import numpy' 2>/dev/null ||
    .venv/bin/python -m pip install -q --disable-pip-version-check "$(grep ^numpy python/requirements-core.txt)"
  exit 0
fi
if ! .venv/bin/python -c 'import torch, numpy, pytest, xdist' 2>/dev/null; then
  if [ "$what" = peers ] && .venv/bin/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))'; then
    : # one resolution for all packages, below
  else
    .venv/bin/python -m pip install -q --disable-pip-version-check -r python/requirements-core.txt
  fi
fi
[ "$what" = peers ] || exit 0
# robomimic requires simulators and plotting packages that its dataset class does not use. It is
# installed without its requirements, so that no other package changes its version. Only
# `robocache-bench peers` runs it. Flax requires packages of 200 MB for its checkpoints.
install_alone() {
  .venv/bin/python -c 'import h5py, robomimic, importlib.util as u; u.find_spec("flax").origin' 2>/dev/null ||
    .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -r python/requirements-peers-alone.txt ||
    echo "venv: cannot install robomimic and flax; 'robocache-bench peers' and tests report this" >&2
}
# Installs independent readers and writers of other formats, the references of the tests of MCAP,
# rosbag2, Zarr and Delta Lake (h5py comes with robomimic). Also installs a server of live messages,
# matplotlib for plots in notebooks, JAX, a type checker, the schemas of Kubernetes, and an S3 server
# for tests.
install_reference_readers() {
  .venv/bin/python -c 'import rosbags, mcap, mcap_ros2, foxglove, zarr, numcodecs, deltalake, matplotlib, jax, optax, msgpack, treescope, rich, basedpyright, ruff, kubernetes_validate, moto, flask_cors' 2>/dev/null ||
    .venv/bin/python -m pip install -q --disable-pip-version-check -r python/requirements-core.txt -r python/requirements-formats.txt ||
    echo "venv: cannot install the reference readers of other formats; their tests skip" >&2
}
if .venv/bin/python -c 'import lerobot, torchcodec, av, torch, pytest, xdist' 2>/dev/null; then install_alone; install_reference_readers; exit 0; fi
if ! .venv/bin/python -m pip install -q --disable-pip-version-check -r python/requirements-core.txt -r python/requirements-peers.txt; then
  echo "venv: cannot install the peers (lerobot 0.6.1 needs Python 3.12); their tests skip" >&2
  .venv/bin/python -m pip install -q --disable-pip-version-check -r python/requirements-core.txt
fi
install_alone
install_reference_readers
