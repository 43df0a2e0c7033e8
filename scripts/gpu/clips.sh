#!/usr/bin/env bash
# Makes the clips that the tests of video/nvdec need on a machine with a GPU (ROBOCACHE_NVDEC_CLIPS)
# from one video of real data. The clips are x264, x265 and libvpx in several forms, 640×480 and
# 1080p, and JPEG images. The luma that libjpeg-turbo decodes is stored next to each image.
#   scripts/gpu/clips.sh DIR [VIDEO.mp4]
set -euo pipefail
to=$(realpath -m "${1:?a folder}")
cd "$(dirname "$0")/../.."
data=${ROBOCACHE_TESTDATA:-../shared/data}
from=${2:-$(find "$data/g1_v30_exact/videos" -name '*.mp4' | sort | head -1)}
mkdir -p "$to"
make_clip() { # NAME FRAMES OPTIONS…
	local name=$1 frames=$2
	shift 2
	[ -s "$to/$name.mp4" ] || ffmpeg -v error -y -i "$from" -frames:v "$frames" -an -pix_fmt yuv420p "$@" "$to/$name.mp4"
}
big=(-vf "scale=1920:1080:flags=bicubic")
make_clip h264_g8 240 -c:v libx264 -crf 24 -g 8 -bf 0
make_clip h264_g30_b 240 -c:v libx264 -crf 24 -g 30 -bf 2
make_clip h264_open 240 -c:v libx264 -crf 24 -g 30 -bf 2 -x264-params open-gop=1
make_clip hevc_g8 240 -c:v libx265 -crf 24 -g 8 -x265-params log-level=error:bframes=0
make_clip hevc_g30 240 -c:v libx265 -crf 24 -g 30 -x265-params log-level=error
make_clip vp9_g8 240 -c:v libvpx-vp9 -crf 34 -b:v 0 -g 8 -cpu-used 6
make_clip h264_1080 60 "${big[@]}" -c:v libx264 -preset veryfast -crf 24 -g 8 -bf 0
make_clip hevc_1080 60 "${big[@]}" -c:v libx265 -preset veryfast -crf 24 -g 30 -x265-params log-level=error
"${PYTHON:-.venv/bin/python}" - "$from" "$to" <<'PY'
import subprocess, sys
from PIL import Image

video, to = sys.argv[1:]
raw = subprocess.run(["ffmpeg", "-v", "error", "-i", video, "-vf", "select=eq(n\\,100)", "-frames:v", "1", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"], capture_output=True, check=True).stdout
frame = Image.frombytes("RGB", (640, 480), raw)
for quality, chroma in ((75, 2), (90, 2), (95, 2), (95, 1), (95, 0)):  # 2: 4:2:0, 1: 4:2:2, 0: 4:4:4
    name = f"{to}/q{quality}_{('444', '422', '420')[chroma]}"
    frame.save(name + ".jpg", quality=quality, subsampling=chroma)
    still = Image.open(name + ".jpg")
    still.draft("L", still.size)  # libjpeg returns the luma as it is stored
    open(name + ".grey", "wb").write(still.convert("L").tobytes())
PY
ls -l "$to" | awk 'NR > 1 { print $5, $9 }'
