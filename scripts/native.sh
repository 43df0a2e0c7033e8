#!/usr/bin/env bash
# Builds the static libraries that our cgo packages link, from Debian's own source packages (apt verifies their signatures), into
# .build/native: scripts/native/video.sh for video/ffmpeg, jpeg.sh for video/turbojpeg, deflate.sh for internal/inflate, zstd.sh for internal/unzstd.
# Each part is built once, again when its own files or the compiler change, and beside the others: it is moved into place when it is whole.
#   native.sh [part ...]    all parts, or these
# scripts/wheels.sh builds for other machines by the same way. The environment says for which: ARCH (x86_64, aarch64), the tools CC, AR, RANLIB, NM, LD,
# OBJCOPY (each one program), MESON, JOBS, and ROBOCACHE_NATIVE, the folder in place of .build/native.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
prefix=$(realpath -m "${ROBOCACHE_NATIVE:-.build/native}") # never a link's path: linker scripts name it
ARCH=${ARCH:-$(uname -m)} CC=${CC:-gcc} AR=${AR:-ar} RANLIB=${RANLIB:-ranlib} NM=${NM:-nm} LD=${LD:-ld} OBJCOPY=${OBJCOPY:-objcopy} MESON=${MESON:-meson}
jobs=${JOBS:-$(nproc)}
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(video jpeg deflate zstd)

need=()
for tool in nasm "$MESON" cmake ninja xz patch make "$CC" "$AR" "$RANLIB" "$NM" "$LD" "$OBJCOPY"; do command -v "$tool" >/dev/null || need+=("$tool"); done
if [ ${#need[@]} -gt 0 ]; then
  echo "native: missing ${need[*]}; run 'make deps' first" >&2
  exit 1
fi

# What a part is made of: its files, this one, and the compiler (a wrapper's text says for which machine it compiles). Debian's sources are those of the
# day of the build; the file that holds the key names their versions.
compiler=$(cat "$(command -v "$CC")" <("$CC" --version) | sha256sum)
key_of() { { cat scripts/native.sh scripts/native/"$1".*; echo "$ARCH $prefix $compiler"; } | sha256sum | cut -c1-16; }
missing=()
declare -A key
for part in "${parts[@]}"; do
  [ -f "scripts/native/$part.sh" ] || { echo "native: no part $part" >&2; exit 2; }
  key[$part]=$(key_of "$part")
  [ "$(head -n 1 "$prefix/$part.built" 2>/dev/null)" = "${key[$part]}" ] || missing+=("$part")
done
[ ${#missing[@]} -gt 0 ] || exit 0

work=$root/.build/native-src.$$
trap 'rm -rf "$work"' EXIT
mkdir -p "$work" "$prefix"
cd "$work"
# shellcheck source=/dev/null
. "$root/scripts/sources.sh"
sources "$work/apt"

# compile OBJECT FLAG... SOURCE
compile() { "$CC" -O3 -fPIC -fvisibility=hidden -Wall "${@:2}" -c -o "$1"; }

# whole NAME OBJECT...: one relocatable object of many, every name in it hidden.
# The object announces itself from a constructor: nothing of it can meet a library of the same code in the process.
whole() {
  local name=$1
  shift
  mkdir -p stage/lib
  "$LD" -r "$@" -o "stage/lib/lib$name.o"
  "$OBJCOPY" --strip-debug --keep-global-symbol=none "stage/lib/lib$name.o"
}

# build PART, then each of its files goes into place at once. A whole object is found by -lNAME through a linker script.
build() {
  local f
  mkdir "$work/$1"
  cd "$work/$1"
  # shellcheck source=/dev/null
  . "$root/scripts/native/$1.sh"
  cd "$work/$1"
  for f in stage/lib/librc*.o; do [ ! -f "$f" ] || echo "INPUT($prefix/${f#stage/})" > "${f%.o}.a"; done
  (cd stage && find . -type f) | while read -r f; do
    mkdir -p "$prefix/$(dirname "$f")"
    cp "stage/$f" "$prefix/$f.$$" && mv "$prefix/$f.$$" "$prefix/$f"
  done
  { echo "${key[$1]}"; ls ./*.dsc | sed 's,^\./,source ,; s,\.dsc$,,'; } > "$prefix/$1.built"
}

# All at once: the small parts fill the seconds in which FFmpeg's configure asks one question after the other.
builders=()
for part in "${missing[@]}"; do build "$part" & builders+=($!); done
failed=()
for n in "${!builders[@]}"; do wait "${builders[n]}" || failed+=("${missing[n]}"); done
[ ${#failed[@]} -eq 0 ] || { echo "native: failed: ${failed[*]}" >&2; exit 1; }
