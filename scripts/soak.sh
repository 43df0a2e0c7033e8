#!/usr/bin/env bash
# A long run of everything at once (robocache-bench soak): SOAK=2m make soak for a short one. Exits non-zero with the reason.
# It takes the real H.264 set where it is, else a synthetic one of 12 episodes.
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
