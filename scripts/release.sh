#!/usr/bin/env bash
# Makes a release of the committed tree in dist/release-VERSION, and tags it vVERSION. Pushes nothing.
#   VERSION=1.2.3 release.sh [--dry-run] [--wheels DIR]
# --dry-run reports each reason to refuse and continues; it creates no tag.
# --wheels DIR uses the finished wheels in DIR instead of building them.
# The version is set in python/robocache/_version.py and version.go. VERSION must equal it; binaries,
# library and wheels are built with it.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${VERSION:?set VERSION, for example 1.2.3}
dry='' wheels=''
while [ $# -gt 0 ]; do
  case "$1" in
    --dry-run) dry=1 ;;
    --wheels) shift; wheels=${1:?--wheels DIR} ;;
    *) echo "release: unknown argument $1" >&2; exit 2 ;;
  esac
  shift
done
go=${GO:-go}
# tool COMMAND…: runs scripts/release. It is built like the binaries, because a fresh clone has no
# native parts and does not need them for this.
tool() { env CGO_ENABLED=0 "$go" run -tags nocuda ./scripts/release "$@"; }
out=dist/release-$version
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH VERSION="$version"

refuse() {
  echo "release: ${dry:+a release would be refused: }$1" >&2
  [ -n "$dry" ] || exit 1
}

[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+((a|b|rc)[0-9]+)?$ ]] || { echo "release: VERSION=$version: expected 1.2.3, or 1.2.3rc1" >&2; exit 2; }
grep -qx "__version__ = \"$version\"" python/robocache/_version.py || refuse "python/robocache/_version.py does not say $version: set it there, and commit"
grep -qx "const Version = \"$version\"" version.go || refuse "version.go does not say $version: set it there, and commit"
[ -z "$(git status --porcelain)" ] || refuse "the tree has changes that are not committed"
if git rev-parse -q --verify "refs/tags/v$version" >/dev/null; then refuse "there is a tag v$version"; fi
rm -rf "$out" && mkdir -p "$out"
# Prints the entries of a section of CHANGELOG.md: that of the version, or else Unreleased.
notes() { awk -v name="## $1" '$0 == name || index($0, name " ") == 1 {on = 1; next} /^## / {on = 0} on' CHANGELOG.md; }
notes "$version" > "$out/notes.md"
grep -q '^- ' "$out/notes.md" || notes Unreleased > "$out/notes.md"
grep -q '^- ' "$out/notes.md" || refuse "CHANGELOG.md has no entries for $version, nor under Unreleased"

if [ -z "$wheels" ]; then
  scripts/wheels.sh
  wheels=dist
fi
for m in x86_64 aarch64; do
  wheel=$(compgen -G "$wheels/robocache-$version-py3-none-manylinux_*_$m.whl") || { echo "release: $wheels has no wheel of $version for $m" >&2; exit 1; }
  cp "$wheel" "$out/"
  # The library contains the version that it was linked with. Its bytes are searched, because a
  # library for another processor cannot run here.
  unzip -p "$wheel" robocache/_lib/librobocache.so > "$out/library"
  grep -qaF "$version" "$out/library" || refuse "the library in $wheel is not of $version"
  records=()
  [ ! -d ".build/wheels/$m/native" ] || records=(".build/wheels/$m/native"/*.built)
  [ ${#records[@]} -gt 0 ] || refuse ".build/wheels/$m/native has no records: the SBOM of the wheel lacks its native parts"
  tool sbom "$out/library" "$version" "${records[@]}" > "$out/robocache-$version-wheel-$m.cdx.json"
  rm "$out/library"
done

for arch in amd64 arm64; do
  name=robocache-$version-linux-$arch
  # nocuda omits the code that opens libraries at run time, so no C library is needed. These
  # binaries cannot decode video, and report that when video is requested.
  env CGO_ENABLED=0 GOOS=linux GOARCH=$arch "$go" build -buildvcs=false -trimpath -tags nocuda -ldflags "-s -w -X main.version=$version" -o "$out/$name" ./cmd/robocache
  if readelf -l "$out/$name" | grep -q INTERP; then echo "release: $name is not static" >&2; exit 1; fi
  tool sbom "$out/$name" "$version" > "$out/$name.cdx.json"
done

case $(uname -m) in aarch64) here=arm64 ;; *) here=amd64 ;; esac
said=$("$out/robocache-$version-linux-$here" version --json | sed -n 's/^ *"version": "\(.*\)",$/\1/p')
[ "$said" = "$version" ] || { echo "release: the binary has version $said" >&2; exit 1; }

docs=$out/robocache-$version-docs
mkdir -p "$docs/man/man1" "$docs/completions"
tool man "$docs/man/man1" "$version"
for shell in bash zsh fish; do "$out/robocache-$version-linux-$here" completion "$shell" > "$docs/completions/robocache.$shell"; done
cp LICENSE NOTICE "$docs/"
tar -C "$out" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - "${docs##*/}" | gzip -n > "$docs.tar.gz"
rm -r "$docs"
(cd "$out" && sha256sum -- *.whl *-linux-a??64 *.json *.tar.gz > SHA256SUMS)

if [ -n "$dry" ]; then
  echo "release: $out is made, and no tag (--dry-run)"
else
  { echo "robocache $version"; echo; cat "$out/notes.md"; } | git tag -a "v$version" --cleanup=verbatim -F -
  echo "release: $out is made, and the tag v$version. Push it, and put the files beside it"
fi
