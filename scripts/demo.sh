#!/usr/bin/env bash
# The main job, shown: make a dataset, look at it, check it, load it into torch, train on it, and draw a contact sheet.
set -euo pipefail
cd "$(dirname "$0")/.."
out=demo-out
rm -rf "$out"
mkdir -p "$out"
robocache=bin/robocache
say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
# doctor answers 3 where it found something: that is news, not a failure.
doctor() { "$robocache" doctor "$1" || { code=$?; [ $code -eq 3 ] || exit $code; }; }

say "a synthetic dataset with two cameras"
"$robocache" synth "$out/synth" --episodes 8 --seconds 4 --cameras 2 --seed 1
say "what is in it"
"$robocache" inspect "$out/synth"
say "is it sound?"
"$robocache" doctor "$out/synth"
"$robocache" inspect "$out/synth" --contact-sheet "$out/synth.png"

real=${ROBOCACHE_TESTDATA:-../shared/data}
for set in g1_v30_exact g1_h264_v30_bigdrift; do
  if [ -d "$real/$set" ]; then
    say "a real one: $set"
    "$robocache" inspect "$real/$set"
    doctor "$real/$set"
    "$robocache" inspect "$real/$set" --contact-sheet "$out/$set.png"
  fi
done

say "an epoch into torch, then a small policy"
PYTHONPATH=python .venv/bin/python examples/train_policy.py "$out/synth" --steps 300
if [ -d "$real/g1_v30_exact" ]; then
  say "the same on a real one"
  PYTHONPATH=python .venv/bin/python examples/train_policy.py "$real/g1_v30_exact" --steps 120
fi
say "look at the contact sheets"
ls -1 "$out"/*.png
