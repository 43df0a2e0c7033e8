#!/usr/bin/env bash
# Builds the wheels of x86-64 and arm64 into dist, on an x86-64 machine. zig compiles and links for
# both, against a glibc that is older than any in use.
#   wheels.sh [machine ...]    x86_64, aarch64; default: both
# Native parts are kept in .build/wheels and built again when their scripts or the compiler change
# (scripts/native.sh). The same source gives the same bytes in any folder. The output of the builds
# is in .build/wheels/MACHINE.log.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
base=$(realpath -m .build/wheels)
machines=("$@")
[ ${#machines[@]} -gt 0 ] || machines=(x86_64 aarch64)
glibc=2.17
version=${VERSION:-$(git describe --always --dirty)}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH ZIG_GLOBAL_CACHE_DIR=$base/cache ZIG_LOCAL_CACHE_DIR=$base/cache

scripts/deps.sh
scripts/deps.sh wheels
tools=$base/tools/bin
# The scripts in a moved checkout contain the old path.
if ! cmp -s python/requirements-wheels.txt "$base/tools/requirements.txt" || ! "$tools/pip" --version >/dev/null 2>&1; then
  python3 -m venv --clear "$base/tools"
  "$tools/pip" install -q --disable-pip-version-check -r python/requirements-wheels.txt
  cp python/requirements-wheels.txt "$base/tools/requirements.txt"
fi
zig=$(echo "$base"/tools/lib/python3*/site-packages/ziglang/zig)

# make_tool_wrappers DIR MACHINE: makes wrappers that run zig under the names of the tools. Meson asks for the
# macros with "-E -dM -". Without a language zig takes "-" for a file name.
make_tool_wrappers() {
  mkdir -p "$1"
  local language
  for language in cc c++; do
    printf '#!/bin/sh\ncase "$*" in "-E -dM -") set -- -x c "$@" ;; esac\nexec %s %s -target %s-linux-gnu.%s "$@"\n' "$zig" "$language" "$2" "$glibc" > "$1/z$language"
  done
  printf '#!/bin/sh\nexec %s ar "$@"\n' "$zig" > "$1/zar"
  printf '#!/bin/sh\nexec %s ranlib "$@"\n' "$zig" > "$1/zranlib"
  chmod +x "$1"/z*
}

# build_engine MACHINE: builds the native parts, then librobocache.so linked against them.
build_engine() {
  local dir=$base/$1 go=amd64
  [ "$1" = x86_64 ] || go=arm64
  make_tool_wrappers "$dir/bin" "$1"
  # Tools are given by name, because FFmpeg stores its configure command. Paths would identify this
  # machine.
  export PATH=$dir/bin:$PATH CC=zcc CXX=zc++ AR=zar RANLIB=zranlib
  env ARCH="$1" ROBOCACHE_NATIVE="$dir/native" MESON="$tools/meson" JOBS="$jobs" \
    NM="$1-linux-gnu-nm" LD="$1-linux-gnu-ld" OBJCOPY="$1-linux-gnu-objcopy" scripts/native.sh
  cp "${zig%/*}/LICENSE" "$dir/native/COPYING.zig" # zig's compiler-rt is linked
  # Go links again only if its own sources changed. Removing the library makes it see new native
  # parts.
  rm -f "$dir/librobocache.so"
  env CGO_ENABLED=1 GOOS=linux GOARCH=$go CGO_CFLAGS="-O2 -I$dir/native/include" CGO_LDFLAGS="-L$dir/native/lib" \
    "${GO:-go}" build -p "$jobs" -buildvcs=false -trimpath -buildmode=c-shared \
    -ldflags "-s -w -X main.version=$version -extldflags \"-Wl,--version-script=$root/cmd/librobocache/exports.map\"" -o "$dir/librobocache.so" ./cmd/librobocache
  "$1-linux-gnu-strip" --strip-all "$dir/librobocache.so"
}

jobs=$((($(nproc) + ${#machines[@]} - 1) / ${#machines[@]}))
builders=()
for m in "${machines[@]}"; do build_engine "$m" >"$base/$m.log" 2>&1 & builders+=($!); done
for n in "${!builders[@]}"; do
  wait "${builders[n]}" || { echo "wheels: ${machines[n]} failed; the end of $base/${machines[n]}.log:" >&2; tail -n 20 "$base/${machines[n]}.log" >&2; exit 1; }
done

for m in "${machines[@]}"; do
  tag=manylinux_${glibc/./_}_$m
  rm -rf python/build "$base/$m/wheel"
  env ROBOCACHE_ENGINE="$base/$m/librobocache.so" ROBOCACHE_NATIVE="$base/$m/native" ROBOCACHE_PLATFORM="$tag" \
    "$tools/pip" wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w "$base/$m/wheel" ./python
  wheel=$(echo "$base/$m/wheel"/*.whl)
  "$tools/auditwheel" show "$wheel" > "$base/$m.audit"
  grep -q "\"$tag\"" "$base/$m.audit" || { echo "wheels: auditwheel does not find $tag:" >&2; cat "$base/$m.audit" >&2; exit 1; }
  mkdir -p dist
  mv "$wheel" dist
  echo "wheels: dist/${wheel##*/} $(stat -c %s "dist/${wheel##*/}" | awk '{printf "%.1f MB", $1 / 1e6}'), auditwheel agrees"
done
