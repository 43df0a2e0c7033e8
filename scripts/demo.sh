#!/usr/bin/env bash
# Shows the main job: makes a dataset, inspects it, checks it, loads it, trains on it and draws
# contact sheets into demo-out. Installs what is missing: FFmpeg, and NumPy in .venv. The decoders
# of .build/native are used if they are built; otherwise the system's FFmpeg is linked.
#
# A machine whose Go caches lack our modules builds with caches of its own, which are removed
# afterwards: they need 900 MB, and the library of the demo 55 MB.
set -euo pipefail
cd "$(dirname "$0")/.."
started=$SECONDS
out=demo-out
say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

say "install and build"
lib=python/robocache/_lib/librobocache.so
# Python's and Debian's packages arrive while Go's modules do.
scripts/venv.sh demo &
venv=$!
if [ -d "$(go env GOMODCACHE)/github.com/parquet-go" ]; then
  make --no-print-directory lib-demo
elif [ ! -f $lib ] || [ -n "$(find . -name '*.go' -newer $lib -print -quit)" ]; then
  caches=$PWD/.build/demo-go
  trap 'rm -rf "$caches"' EXIT
  export GOCACHE=$caches/build GOMODCACHE=$caches/mod GOFLAGS="${GOFLAGS:-} -modcacherw"
  [ -f .build/native/video.built ] || scripts/deps.sh demo &
  debian=$!
  go list -deps ./cmd/librobocache >/dev/null
  wait $debian
  make --no-print-directory lib-demo
  rm -rf "$caches"
fi
wait $venv
rm -rf "$out"
mkdir -p "$out"
python() { PYTHONPATH=python .venv/bin/python "$@"; }
robocache() { python -m robocache "$@"; }
# doctor exits with 3 if it has findings. They are shown; the demo continues.
doctor() { robocache doctor "$1" || { code=$?; [ $code -eq 3 ] || exit $code; }; }

say "make a synthetic dataset with two cameras"
robocache synth "$out/synth" --episodes 20 --seconds 3 --cameras 2 --seed 1
say "inspect it"
robocache inspect "$out/synth"
say "check it"
robocache doctor "$out/synth"
robocache inspect "$out/synth" --contact-sheet "$out/synth.png"

real=${ROBOCACHE_TESTDATA:-../shared/data}/g1_v30_exact
if [ -d "$real" ]; then
  say "inspect and check a recorded dataset: $(basename "$real")"
  robocache inspect "$real"
  doctor "$real"
  robocache inspect "$real" --contact-sheet "$out/$(basename "$real").png"
fi

if .venv/bin/python -c 'import torch' 2>/dev/null; then
  say "train a small policy in torch"
  python examples/train_policy.py "$out/synth" --steps 300
else
  say "train a small policy in NumPy (torch is not installed in .venv)"
fi
python examples/numpy_policy.py "$out/synth" --steps 300
say "done in $((SECONDS - started)) s; the contact sheets:"
ls -1 "$out"/*.png
