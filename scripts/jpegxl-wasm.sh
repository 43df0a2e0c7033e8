#!/usr/bin/env bash
# Takes libjxl's decoder, compiled to WebAssembly, from the Go module github.com/gen2brain/jpegxl into video/jpegxl/data, with the licences.
# The module itself is not linked: it opens a shared libjxl where the machine has one, and bounds neither memory nor time.
set -euo pipefail
cd "$(dirname "$0")/.."
version=v0.5.0 # libjxl v0.11.2; lib/Makefile.decode of the module says how it was built
sum=h1:BjAt0aod5QH/UQTY8atavHzgWT+PzGHhQk+9PKn1jWY=
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
go mod init x >/dev/null 2>&1
go mod download -json "github.com/gen2brain/jpegxl@$version" > info.json
field() { sed -n "s/^\t\"$1\": \"\(.*\)\",\?$/\1/p" info.json; }
[ "$(field Sum)" = "$sum" ] || { echo "the module's sum is $(field Sum), not $sum" >&2; exit 1; }
dir=$(field Dir)
cd - >/dev/null
install -m 644 "$dir/lib/decode.wasm.gz" video/jpegxl/data/decode.wasm.gz
install -m 644 "$dir/lib/LICENSE.libjxl" video/jpegxl/data/COPYING.libjxl
install -m 644 "$dir/LICENSE" video/jpegxl/data/COPYING.jpegxl
