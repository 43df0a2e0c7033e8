#!/usr/bin/env bash
# The figures of docs/PERFORMANCE.md: decode and load, ours and the peers', interleaved. About 25 minutes on two cores.
# It measures on the real set g1_v30_exact (AV1) and on H.264 re-encodings of it.
set -euo pipefail
cd "$(dirname "$0")/.."
real=${ROBOCACHE_TESTDATA:-../shared/data}
repeats=${REPEATS:-5}
out=${OUT:-bench-out}
robocache=bin/robocache
[ -d "$real/g1_v30_exact" ] || { echo "bench: no data at $real (ROBOCACHE_TESTDATA)" >&2; exit 1; }
mkdir -p "$out"

# H.264 twins of the AV1 set: GOP 30 and GOP 250.
for gop in 30 250; do
  [ -d "$out/h264_g$gop" ] || "$robocache" convert "$real/g1_v30_exact" "$out/h264_g$gop" --video-codec h264 --gop "$gop"
done

run() { "$robocache" bench "$@"; }
for set in "$real/g1_v30_exact" "$out/h264_g30" "$out/h264_g250"; do
  name=$(basename "$set")
  # GOP 250: the peers need minutes for an epoch.
  n=$repeats
  [ "$name" = h264_g250 ] && n=$(((repeats + 1) / 2))
  run decode "$set" --arms robocache,ffmpeg,torchcodec,pyav --repeats "$n" --out "$out/decode-sequential-$name"
  run decode "$set" --arms robocache,torchcodec,pyav --pattern random --count 300 --repeats "$n" --out "$out/decode-random-$name"
  run load "$set" --arms robocache,lerobot --epochs 1 --repeats "$n" --out "$out/load-$name"
done
run load "$real/g1_v30_exact" --arms robocache,lerobot --epochs 1 --window 8 --repeats $(((repeats + 1) / 2)) --out "$out/load-window8"
# Without video: a table-only twin, because lerobot decodes every camera that a set has.
[ -d "$out/table" ] || "$robocache" convert "$real/g1_v30_exact" "$out/table" --keys observation.state,action
run load "$out/table" --arms robocache,lerobot --video none --window 16 --repeats "$repeats" --epochs 4 --out "$out/load-novideo"
# 1,305 rows are over in milliseconds here: the rate of the engine wants more epochs.
run load "$out/table" --arms robocache --video none --window 16 --repeats "$repeats" --epochs 400 --out "$out/load-novideo-long"
