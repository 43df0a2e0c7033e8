#!/usr/bin/env bash
# Copies libjxl's decoder, compiled to WebAssembly, and its licences from the Go module
# github.com/gen2brain/jpegxl into video/jpegxl/data. The module itself is not linked, because it
# opens a shared libjxl if the machine has one, and limits neither memory nor time.
set -euo pipefail
cd "$(dirname "$0")/.."
version=v0.5.0 # libjxl v0.11.2; see lib/Makefile.decode of the module for its build
sum=h1:BjAt0aod5QH/UQTY8atavHzgWT+PzGHhQk+9PKn1jWY=
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
go mod init x >/dev/null 2>&1
go mod download -json "github.com/gen2brain/jpegxl@$version" > info.json
field() { sed -n "s/^\t\"$1\": \"\(.*\)\",\?$/\1/p" info.json; }
[ "$(field Sum)" = "$sum" ] || { echo "jpegxl-wasm: the module's checksum is $(field Sum), expected $sum" >&2; exit 1; }
dir=$(field Dir)
cd - >/dev/null
install -m 644 "$dir/lib/decode.wasm.gz" video/jpegxl/data/decode.wasm.gz
install -m 644 "$dir/lib/LICENSE.libjxl" video/jpegxl/data/COPYING.libjxl
install -m 644 "$dir/LICENSE" video/jpegxl/data/COPYING.jpegxl
