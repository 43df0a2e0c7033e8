#!/usr/bin/env bash
# Makes the clips that self-test decodes, and the MD5 of their YUV planes by the ffmpeg program: go generate ./selftest
set -euo pipefail
cd "$(dirname "$0")/clips"
rm -f -- *
src=(-nostdin -v error -y -f lavfi -i testsrc2=size=96x64:rate=30:duration=0.4 -fflags +bitexact -flags:v +bitexact)
large=("${src[@]/96x64/160x144}") # the engines of GPUs take no smaller HEVC and VP9
end=(-pix_fmt yuv420p -movflags +faststart)
ffmpeg "${src[@]}" -c:v libsvtav1 -g 2 -crf 40 -preset 12 "${end[@]}" av1.mp4 2>/dev/null
ffmpeg "${src[@]}" -c:v libx264 -g 6 -bf 2 -crf 30 "${end[@]}" h264.mp4
ffmpeg "${large[@]}" -c:v libx265 -x265-params log-level=none:keyint=6 -crf 30 "${end[@]}" hevc.mp4
ffmpeg "${src[@]}" -c:v mpeg4 -g 6 -q:v 8 "${end[@]}" mpeg4.mp4
ffmpeg "${large[@]}" -c:v libvpx-vp9 -g 6 -crf 40 -b:v 0 "${end[@]}" vp9.mp4
for f in *.mp4; do ffmpeg -nostdin -v error -i "$f" -map 0:v -fps_mode passthrough -pix_fmt yuv420p -f framemd5 - | grep -v '^#' | awk -F, '{gsub(/ /,"",$6); print $6}' > "${f%.mp4}.md5"; done
