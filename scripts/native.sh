#!/usr/bin/env bash
# Builds the static decode libraries (dav1d, libavcodec, libswscale, libavutil) that video/ffmpeg links,
# from Debian's own source packages (apt verifies their signatures), into .build/native.
# Only decoders are built: no container parser, no protocol, no network (specs/video.md, section 8).
# dav1d's objects are merged into libavcodec.a, so that one -lavcodec serves this build and a system FFmpeg alike.
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=$PWD/.build/native
stamp=$prefix/built
want=$(sha256sum scripts/native.sh | cut -c1-16)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then exit 0; fi

need=()
for tool in nasm meson ninja xz gcc make ar; do command -v "$tool" >/dev/null || need+=("$tool"); done
if [ ${#need[@]} -gt 0 ]; then
  echo "native: missing ${need[*]}; run 'make deps' first" >&2
  exit 1
fi

work=$PWD/.build/native-src
rm -rf "$work" "$prefix"
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
"${apt[@]}" source --download-only dav1d ffmpeg >/dev/null

unpack() { mkdir "$1" && tar -xf "$1"_*.orig.tar.* -C "$1" --strip-components=1 --exclude='*/tests/ref/*' 2>/dev/null || tar -xf "$(ls "$1"_*.orig.tar.xz)" -C "$1" --strip-components=1; }
unpack dav1d
unpack ffmpeg

jobs=$(nproc)
meson setup dav1d/build dav1d --buildtype release --default-library static -Db_staticpic=true \
  -Denable_tools=false -Denable_tests=false -Denable_examples=false \
  --prefix "$prefix" --libdir lib >/dev/null
ninja -C dav1d/build -j "$jobs" install >/dev/null

mkdir ffmpeg/out
cd ffmpeg/out
PKG_CONFIG_PATH="$prefix/lib/pkgconfig" ../configure --prefix="$prefix" --pkg-config-flags=--static \
  --disable-everything --disable-autodetect --disable-network --disable-programs --disable-doc --disable-debug \
  --disable-avformat --disable-avdevice --disable-avfilter --disable-swresample --disable-postproc \
  --enable-pic --enable-libdav1d \
  --enable-decoder=libdav1d,h264,hevc,vp9,mpeg4,mjpeg --enable-parser=h264,hevc,vp9,mpeg4video,av1 \
  --extra-cflags="-fvisibility=hidden -w" >/dev/null
make -j "$jobs" install >/dev/null
cp ../COPYING.LGPLv2.1 "$prefix/COPYING.LGPLv2.1"
cp "$work/dav1d/COPYING" "$prefix/COPYING.dav1d"

ar -M <<MRI
OPEN $prefix/lib/libavcodec.a
ADDLIB $prefix/lib/libdav1d.a
SAVE
END
MRI
ranlib "$prefix/lib/libavcodec.a"
echo "$want" > "$stamp"
rm -rf "$work"
