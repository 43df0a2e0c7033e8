#!/usr/bin/env bash
# Builds the static libraries that our cgo packages link, from Debian's own source packages (apt verifies their signatures), into
# .build/native: scripts/native/video.sh for video/ffmpeg, jpeg.sh for video/turbojpeg, deflate.sh for internal/inflate, zstd.sh for internal/unzstd.
# Each part is built once, again when its own files change, and beside the others: it is moved into place when it is whole.
#   native.sh [part ...]    all parts, or these
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
prefix=$root/.build/native
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(video jpeg deflate zstd)

timestamp_of() { cat scripts/native/"$1".* | sha256sum | cut -c1-16; }
missing=()
for part in "${parts[@]}"; do
  [ -f "scripts/native/$part.sh" ] || { echo "native: no part $part" >&2; exit 2; }
  if [ ! -f "$prefix/built.$part" ] || [ "$(cat "$prefix/built.$part")" != "$(timestamp_of "$part")" ]; then missing+=("$part"); fi
done
[ ${#missing[@]} -gt 0 ] || exit 0

need=()
for tool in nasm meson cmake ninja xz patch gcc make ar; do command -v "$tool" >/dev/null || need+=("$tool"); done
if [ ${#need[@]} -gt 0 ]; then
  echo "native: missing ${need[*]}; run 'make deps' first" >&2
  exit 1
fi

work=$root/.build/native-src.$$
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/apt/lists/partial" "$work/apt/parts" "$prefix"
cd "$work"

# The machine's own package sources, asked for source packages.
for f in /etc/apt/sources.list.d/*.sources; do
  [ -f "$f" ] || continue
  awk -v RS= '/debian-archive-keyring|\/debian/ {gsub(/Types: deb( deb-src)?/, "Types: deb-src"); print; print ""}' "$f" >> apt/parts/src.sources
done
if [ -f /etc/apt/sources.list ]; then
  sed -n 's/^deb /deb-src /p' /etc/apt/sources.list > apt/parts/src.list
fi
apt=(apt-get -q -o APT::Sandbox::User=root -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$work/apt/parts" -o "Dir::State::lists=$work/apt/lists")
"${apt[@]}" update >/dev/null
jobs=$(nproc)

# fetch NAME: Debian's source of a package, its code patches applied, in the folder NAME.
fetch() {
  "${apt[@]}" source --download-only "$1" >/dev/null
  local tar
  tar=$(ls "$1"_*.orig.tar.* | grep -v '\.asc$' | head -n 1)
  mkdir "$1"
  tar -xf "$tar" -C "$1" --strip-components=1 --exclude='*/tests/ref/*'
}

# install_stage: what a part has put under stage goes into place, each file at once.
install_stage() {
  (cd stage && find . -type f) | while read -r f; do
    mkdir -p "$prefix/$(dirname "$f")"
    cp "stage/$f" "$prefix/$f.$$" && mv "$prefix/$f.$$" "$prefix/$f"
  done
}

# whole NAME OBJECT...: one relocatable object of many, every name in it hidden, and the linker script that -lNAME finds.
# The object announces itself from a constructor: nothing of it can meet a library of the same code in the process.
whole() {
  local name=$1
  shift
  mkdir -p stage/lib
  ld -r "$@" -o "stage/lib/lib$name.o"
  objcopy --strip-debug --keep-global-symbol=none "stage/lib/lib$name.o"
  echo "INPUT(lib$name.o)" > "stage/lib/lib$name.a"
}

for part in "${missing[@]}"; do
  rm -rf "$work/$part"
  mkdir "$work/$part"
  cd "$work/$part"
  # shellcheck source=/dev/null
  . "$root/scripts/native/$part.sh"
  cd "$work/$part"
  install_stage
  (cd "$root" && timestamp_of "$part") > "$prefix/built.$part"
done
