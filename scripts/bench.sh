#!/usr/bin/env bash
# The figures of docs/PERFORMANCE.md: every workload through the peers and ours, and decoding alone, interleaved. On two quiet cores about
# an hour and a half (REPEATS=3: an hour). It measures on the real set g1_v30_exact (AV1) and on H.264 re-encodings of it.
set -euo pipefail
cd "$(dirname "$0")/.."
real=${ROBOCACHE_TESTDATA:-../shared/data}
repeats=${REPEATS:-5}
out=${OUT:-bench-out}
robocache=bin/robocache
[ -d "$real/g1_v30_exact" ] || { echo "bench: no data at $real (ROBOCACHE_TESTDATA)" >&2; exit 1; }
mkdir -p "$out"

run() { "$robocache" bench "$@"; }

# The table of bars: every workload through the peers and ours.
run peers "$real/g1_v30_exact" --all --repeats "$repeats" --work "$out/sets" --out "$out/peers"

# Decoding alone, on H.264 twins of the AV1 set too: GOP 30 and GOP 250.
for gop in 30 250; do
  [ -d "$out/h264_g$gop" ] || "$robocache" convert "$real/g1_v30_exact" "$out/h264_g$gop" --video-codec h264 --gop "$gop"
done
for set in "$real/g1_v30_exact" "$out/h264_g30" "$out/h264_g250"; do
  name=$(basename "$set")
  # GOP 250: a random frame costs a twentieth of a second.
  n=$repeats
  [ "$name" = h264_g250 ] && n=$(((repeats + 1) / 2))
  run decode "$set" --runners robocache,ffmpeg,torchcodec,pyav --repeats "$n" --out "$out/decode-sequential-$name"
  run decode "$set" --runners robocache,torchcodec,pyav --pattern random --count 300 --repeats "$n" --out "$out/decode-random-$name"
done
# The kernels on the CPU, beside NumPy, torch and memcpy. A GPU's: scripts/gpu.
run ops --sweep --rounds "$repeats" --out "$out/ops" >"$out/ops.md"

# The scenarios of the benchmark that LeRobot's users know, each figure checked.
run load "$real/g1_v30_exact" --scenarios all --runners engine,robocache --repeats "$repeats" --duration "${DURATION:-20s}" --explain --out "$out/scenarios"
