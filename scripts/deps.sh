#!/usr/bin/env bash
# Installs what building and testing need and the machine lacks: Debian packages (as root, or through sudo). With an argument what else is
# needed: demo, to link the system's FFmpeg; browser, by tests of the page; wheels, to build for arm64; qemu, to run arm64; userlands, to test wheels in others than this one; containers, to build images.
set -euo pipefail
declare -A package=([ffmpeg]=ffmpeg [nasm]=nasm [meson]=meson [cmake]=cmake [patch]=patch [ninja]=ninja-build [gcc]=gcc [make]=make [xz]=xz-utils [git]=git [pkg-config]=pkg-config)
[ "${1:-}" = demo ] && package=([ffmpeg]=ffmpeg [gcc]=gcc [make]=make)
[ "${1:-}" = browser ] && package=([chromium-headless-shell]=chromium-headless-shell)
[ "${1:-}" = wheels ] && package=([aarch64-linux-gnu-ld]=binutils-aarch64-linux-gnu [x86_64-linux-gnu-ld]=binutils)
[ "${1:-}" = qemu ] && package=([qemu-aarch64-static]=qemu-user-static)
[ "${1:-}" = userlands ] && package=([debootstrap]=debootstrap [qemu-aarch64-static]=qemu-user-static)
[ "${1:-}" = containers ] && package=([debootstrap]=debootstrap [buildah]=buildah)
missing=()
for tool in "${!package[@]}"; do command -v "$tool" >/dev/null || missing+=("${package[$tool]}"); done
# Headers are no programs: the compiler says whether they are installed.
if [ "${1:-}" = demo ] && ! echo '#include <libswscale/swscale.h>
#include <libavcodec/avcodec.h>' | gcc -E - >/dev/null 2>&1; then missing+=(libavcodec-dev libswscale-dev); fi
[ ${#missing[@]} -eq 0 ] && exit 0
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "deps: missing ${missing[*]}, and neither root nor sudo to install them" >&2; exit 1; }
  sudo=(sudo)
fi
command -v apt-get >/dev/null || { echo "deps: missing ${missing[*]}; install them with this system's package manager" >&2; exit 1; }
echo "deps: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get -q update >/dev/null
"${sudo[@]}" apt-get -q install -y --no-install-recommends "${missing[@]}" >/dev/null
