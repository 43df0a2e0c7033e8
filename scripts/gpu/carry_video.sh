#!/usr/bin/env bash
# Packs what run_video.sh needs on a machine with a GPU to measure decoding of video there. Each
# package is NAME.tar.xz, or pieces NAME.tar.xz.0of4, .1of4 … of at most PIECE bytes (35 MB). The
# pieces may be copied one after the other.
#   scripts/gpu/carry_video.sh FOLDER base
#       The Python package with its library and command line (python -m robocache),
#       robocache-bench, and the tests of video/nvdec. Needs `make lib`.
#   scripts/gpu/carry_video.sh FOLDER sets [SET]
#       LeRobot sets of one recording (g1_v30_exact of the test data) in several codecs.
#       Needs ffmpeg with x264 and x265.
#   scripts/gpu/carry_video.sh FOLDER peers DALI.whl TORCHCODEC.whl MORE.whl…
#       DALI, torchcodec, FFmpeg's shared libraries (built from Debian's source), and MORE, which
#       DALI imports.
# On the GPU machine, with the folder: bash FOLDER/run.sh STEP…
set -euo pipefail
to=$(realpath -m "${1:?a folder}")
what=${2:?base, sets or peers}
shift 2
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
in=$work
mkdir -p "$to"
cp scripts/gpu/run_video.sh "$to/run.sh"

# pack NAME FILE…: packs files of the folder $in
pack() {
	local name=$to/$1.tar.xz
	shift
	rm -f "$name"*
	tar -C "$in" --sort=name --mtime=@0 --owner=0 --group=0 -cf - "$@" | nice -n 3 xz -T1 "-${LEVEL:-2}" >"$name"
	split_pieces "$name"
}

run_python() { env PYTHONPATH="$PWD/python" "${PYTHON:-.venv/bin/python}" "$@"; }

# split_pieces FILE: splits a file that is larger than PIECE
split_pieces() {
	local n
	n=$((($(stat -c %s "$1") + ${PIECE:=35000000} - 1) / PIECE))
	[ $n -le 1 ] || split -b "$PIECE" -d -a 1 --additional-suffix="of$n" "$1" "$1."
	[ $n -le 1 ] || rm "$1"
	ls -l "$1"*
}

# make_set NAME CODEC GOP B-FRAMES SIZE EPISODES: makes a set whose mp4 is encoded again. Each episode
# begins with a key frame, so that larger sets can be made by copying.
make_set() {
	local set=$work/sets/$1 mp4 coder begins
	run_python -m robocache convert "$from" "$set" ${6:+--episodes "$6"} >/dev/null
	begins=$(run_python -c "import robocache as r; d = r.open('$set'); print(','.join(f'{x / float(d.fps):.6f}' for x in d.episodes['lengths'].cumsum()[:-1]))")
	rm -f "$set/meta/conversion.json"
	coder=(-c:v libx264 -sc_threshold 0 -flags +cgop -g "$3" -keyint_min 1 -bf "$4")
	[ "$2" = h264 ] || coder=(-c:v libx265 -tag:v hvc1 -x265-params "keyint=$3:min-keyint=1:bframes=$4:open-gop=0:scenecut=0:log-level=error")
	find "$set/videos" -name '*.mp4' | while read -r mp4; do
		nice -n 3 ffmpeg -nostdin -v error -i "$mp4" ${5:+-vf "scale=$5:flags=bicubic"} -pix_fmt yuv420p -threads 2 -preset "${PRESET:-veryfast}" -crf 24 "${coder[@]}" -force_key_frames "$begins" -forced-idr 1 -movflags +faststart "$mp4.new.mp4"
		mv "$mp4.new.mp4" "$mp4"
	done
	python3 - "$set/meta/info.json" "$2" "$5" <<'P'
import json, sys

path, codec, size = sys.argv[1:]
info = json.load(open(path))
for f in info["features"].values():
    if f["dtype"] == "video":
        f["info"]["video.codec"] = codec
        if size:
            wide, high = map(int, size.split("x"))
            f["shape"], f["info"]["video.height"], f["info"]["video.width"] = [high, wide, 3], high, wide
json.dump(info, open(path, "w"), indent=4)
P
	du -sh "$set"
}

case $what in
base)
	mkdir "$work/python"
	cp -r python/robocache "$work/python/"
	find "$work" -name __pycache__ -prune -exec rm -rf {} +
	git describe --always --dirty >"$work/revision"
	go test -c -trimpath -ldflags "-s -w" -o "$work/nvdec.test" ./video/nvdec
	CGO_ENABLED=0 go build -C bench -trimpath -ldflags "-s -w" -o "$work/robocache-bench" ./cmd/robocache-bench
	pack base python robocache-bench nvdec.test revision
	;;
sets)
	from=${1:-${ROBOCACHE_TESTDATA:-../shared/data}/g1_v30_exact}
	mkdir "$work/sets"
	make_set h264_g8 h264 8 0 "" ""
	make_set h264_g30 h264 30 2 "" ""
	make_set hevc_g8 hevc 8 0 "" ""
	make_set hevc_g30 hevc 30 2 "" ""
	pack sets sets
	rm -r "$work/sets"/*
	make_set h264_1080_g8 h264 8 0 1920x1080 0-1
	make_set h264_1080_g30 h264 30 2 1920x1080 0-1
	pack sets1080 sets
	;;
peers)
	in=$work/peers
	mkdir "$in"
	python3 - "$work/peers" "$1" <<'P'
import re, sys, zipfile

with zipfile.ZipFile(sys.argv[2]) as z:
    for i in z.infolist():
        tag = re.search(r"cpython-(\w+)-", i.filename)
        if not re.search(r"/(include|test|tests|Acknowledgements\.txt)($|/)|\.pyi$", i.filename) and (not tag or tag[1] == "312") and i.filename.startswith("nvidia"):
            z.extract(i, sys.argv[1])
P
	pack dali .
	rm -r "$in"
	mkdir -p "$in/lib"
	shift
	for wheel in "$@"; do python3 -m zipfile -e "$wheel" "$in"; done
	find "$in/torchcodec" -name 'libtorchcodec_*[46789].so' -delete
	(
		cd "$work"
		. "$OLDPWD/scripts/sources.sh"
		sources "$work/apt"
		fetch ffmpeg
		cd ffmpeg
		./configure --prefix=/ --disable-everything --disable-autodetect --disable-network --disable-programs --disable-doc --disable-debug --disable-postproc --enable-pic --enable-shared --disable-static \
			--enable-demuxer=mov --enable-decoder=h264,hevc --enable-parser=h264,hevc --enable-bsf=h264_mp4toannexb,hevc_mp4toannexb --enable-protocol=file --enable-filter=scale,format --extra-cflags=-w >/dev/null
		make -j2 >/dev/null
		make install DESTDIR="$work/stage" >/dev/null
	)
	for lib in "$work"/stage/lib/lib*.so; do cp -L "$lib" "$in/lib/$(readelf -d "$lib" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')"; done
	pack torchcodec .
	;;
*)
	echo "carry_video: unknown package $what; expected base, sets or peers" >&2
	exit 2
	;;
esac
