#!/usr/bin/env bash
# Collects in a folder what run.sh needs on a GPU machine: test binaries and programs without cgo,
# and the Python package with its library. The folder is also packed, as .build/gpu.tar.xz, which
# has a third of its size.
#   scripts/gpu/carry.sh .build/gpu      here
#   bash run.sh                          in the folder on the GPU machine
set -euo pipefail
to=$(realpath -m "${1:?a folder}")
cd "$(dirname "$0")/../.."
rm -rf "$to"
mkdir -p "$to/kernel/cuda"
# The tests read their sources at a path relative to the folder of their package.
CGO_ENABLED=0 go test -c -trimpath -ldflags "-s -w" -o "$to/kernel/cuda/cuda.test" ./kernel/cuda
CGO_ENABLED=0 go test -c -trimpath -ldflags "-s -w" -o "$to/kernel/cuda/cudahost.test" ./internal/cudahost
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$(git describe --always --dirty)" -o "$to/robocache" ./cmd/robocache
CGO_ENABLED=0 go build -C bench -trimpath -ldflags "-s -w -X main.version=$(git describe --always --dirty)" -o "$to/robocache-bench" ./cmd/robocache-bench
cp -r kernel/cuda/src "$to/kernel/cuda/"
mkdir -p "$to/bench"
cp -r bench/runners "$to/bench/"
if [ -e python/robocache/_lib/librobocache.so ]; then
	mkdir -p "$to/python"
	cp -r python/robocache python/tests "$to/python/"
	mkdir -p "$to/kernel/testdata"
	cp -r kernel/testdata/vectors "$to/kernel/testdata/"
	find "$to/python" -name __pycache__ -prune -exec rm -rf {} +
else
	echo "carry: no python/robocache/_lib/librobocache.so, so the Python part is omitted; run 'make lib'" >&2
fi
data=${ROBOCACHE_TESTDATA:-../shared/data}/g1_h264_v30 # 2 MB: the dataset of the batches
[ -d "$data" ] && mkdir -p "$to/data" && cp -r "$data" "$to/data/"
cp scripts/gpu/run.sh scripts/gpu/sanitize.sh "$to/"
git describe --always --dirty >"$to/revision"
XZ_OPT='-2 -T0' tar -C "$to" -cJf "$to.tar.xz" .
du -sh "$to" "$to.tar.xz"
