#!/usr/bin/env bash
# Builds what run.sh takes to a GPU machine, into a folder: test binaries and the programs without cgo, the Python package with its library.
#   scripts/gpu/carry.sh .build/gpu      then there: bash run.sh
# Beside the folder it is packed too, as .build/gpu.tar.xz: a third of the bytes.
set -euo pipefail
to=$(realpath -m "${1:?a folder}")
cd "$(dirname "$0")/../.."
rm -rf "$to"
mkdir -p "$to/kernel/cuda"
# The tests read their sources by a path from their package's folder.
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
	echo "carry: no python/robocache/_lib/librobocache.so (make lib): the Python part stays behind" >&2
fi
data=${ROBOCACHE_TESTDATA:-../shared/data}/g1_h264_v30 # 2 MB: what batches are made of
[ -d "$data" ] && mkdir -p "$to/data" && cp -r "$data" "$to/data/"
cp scripts/gpu/run.sh scripts/gpu/sanitize.sh "$to/"
git describe --always --dirty >"$to/revision"
XZ_OPT='-2 -T0' tar -C "$to" -cJf "$to.tar.xz" .
du -sh "$to" "$to.tar.xz"
