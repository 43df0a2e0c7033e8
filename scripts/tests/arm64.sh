#!/usr/bin/env bash
# Runs Go tests on arm64 with qemu, once per release: the packages whose results must be equal to
# the bit, and the decoders, linked as in the wheel.
#   tests/arm64.sh [package ...]    default: these packages
# Needs the native parts and the userland that `make test-wheels` creates, and fails without them.
set -euo pipefail
cd "$(dirname "$0")/../.."
base=$(realpath -m .build/wheels)
root=$base/roots/arm64
native=$base/aarch64/native
packages=("$@")
[ ${#packages[@]} -gt 0 ] || packages=(. ./align ./mapping ./stats ./kernel/... ./video/... ./format/internal/elements ./format/zarr/internal/blosc)
scripts/deps.sh userlands
[ -f "$root/.whole" ] && [ -f "$native/video.built" ] || { echo "arm64: no arm64 userland or native parts in .build/wheels; run 'make test-wheels'" >&2; exit 2; }
export PATH=$base/aarch64/bin:$PATH ZIG_GLOBAL_CACHE_DIR=$base/cache ZIG_LOCAL_CACHE_DIR=$base/cache
env CC=zcc CXX=zc++ AR=zar CGO_ENABLED=1 GOOS=linux GOARCH=arm64 CGO_CFLAGS="-O2 -I$native/include" CGO_LDFLAGS="-L$native/lib" \
  "${GO:-go}" test -buildvcs=false -trimpath -vet=off -short -timeout 60m -exec "qemu-aarch64-static -L $root" "${packages[@]}"
