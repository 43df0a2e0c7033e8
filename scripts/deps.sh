#!/usr/bin/env bash
# Installs the Debian packages that building and testing need and the machine lacks, as root or
# through sudo. An argument selects the packages of another task instead:
#   demo        link the system's FFmpeg
#   browser     run the tests of the page
#   wheels      build for arm64
#   qemu        run arm64 programs
#   userlands   test wheels in other Debian releases
#   containers  build images
#   dds         receive from DDS
set -euo pipefail
declare -A package=([ffmpeg]=ffmpeg [nasm]=nasm [meson]=meson [cmake]=cmake [patch]=patch [ninja]=ninja-build [gcc]=gcc [make]=make [xz]=xz-utils [git]=git [pkg-config]=pkg-config)
[ "${1:-}" = demo ] && package=([ffmpeg]=ffmpeg [gcc]=gcc [make]=make)
[ "${1:-}" = browser ] && package=([chromium-headless-shell]=chromium-headless-shell)
[ "${1:-}" = wheels ] && package=([aarch64-linux-gnu-ld]=binutils-aarch64-linux-gnu [x86_64-linux-gnu-ld]=binutils)
[ "${1:-}" = qemu ] && package=([qemu-aarch64-static]=qemu-user-static)
[ "${1:-}" = userlands ] && package=([debootstrap]=debootstrap [qemu-aarch64-static]=qemu-user-static)
[ "${1:-}" = containers ] && package=([debootstrap]=debootstrap [buildah]=buildah)
[ "${1:-}" = dds ] && package=()
missing=()
for tool in "${!package[@]}"; do command -v "$tool" >/dev/null || missing+=("${package[$tool]}"); done
# Headers are not programs, so the compiler checks whether they are installed.
if [ "${1:-}" = demo ] && ! echo '#include <libswscale/swscale.h>
#include <libavcodec/avcodec.h>' | gcc -E - >/dev/null 2>&1; then missing+=(libavcodec-dev libswscale-dev); fi
# A library is no program either.
if [ "${1:-}" = dds ] && [[ $(/sbin/ldconfig -p) != *libddsc.so.0* ]]; then missing+=(libddsc0debian); fi
[ ${#missing[@]} -eq 0 ] && exit 0
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "deps: missing ${missing[*]}; installing them needs root or sudo" >&2; exit 1; }
  sudo=(sudo)
fi
command -v apt-get >/dev/null || { echo "deps: missing ${missing[*]}; install them with this system's package manager" >&2; exit 1; }
echo "deps: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
# Other targets may install at the same time. apt does not wait for the lock of its lists.
mkdir -p "$(dirname "$0")/../.build"
exec 9>"$(dirname "$0")/../.build/apt.lock"
flock 9
"${sudo[@]}" apt-get -q -o DPkg::Lock::Timeout=600 update >/dev/null
"${sudo[@]}" apt-get -q -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "${missing[@]}" >/dev/null
