#!/usr/bin/env bash
# Runs everything together for a long time (robocache-bench soak). For a short run: SOAK=2m make
# soak. Exits non-zero with the reason. Uses the real H.264 set if it exists, otherwise a synthetic
# one of 12 episodes.
set -euo pipefail
cd "$(dirname "$0")/.."
robocache=bin/robocache
set=${ROBOCACHE_TESTDATA:-../shared/data}/g1_h264_v30
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [ ! -d "$set" ]; then
  set=$scratch/set
  "$robocache" synth "$set" --episodes 12 --seconds 6 --size 320x240
fi
bin/robocache-bench soak "$set" --duration "${SOAK:-30m}" "$@"
