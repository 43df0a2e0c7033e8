#!/usr/bin/env bash
# Measures video that a GPU decodes, with the packages of carry_video.sh next to this file. Unpacked
# packages are kept in WHERE on this machine, so pieces may arrive in several calls.
#   bash run.sh STEP…      for example: run.sh unpack -- check -- load h264_g8
# Steps are separated by --: unpack, check, limits [CLIP…], load SET…, train SET…
# Records go to $OUT: record.md (commands and their output) and results.tar.gz (JSON and CSV).
# Environment: SECONDS_OF, seconds of a window; LIMIT, seconds of a command; THREADS (16), our
# threads; WORKERS (14), workers of the peers.
cd "$(dirname "$0")" || exit 1
here=$PWD WHERE=${WHERE:-/tmp/robocache-video} OUT=$(realpath -m "${OUT:-.}") LIMIT=${LIMIT:-280} WINDOW=${SECONDS_OF:-4} THREADS=${THREADS:-16} WORKERS=${WORKERS:-14} PY=${PY:-python3}
mkdir -p "$WHERE/parts" "$WHERE/out" "$OUT"
record=$OUT/record.md failed=0
export PYTHONPATH=$WHERE/python:$WHERE/peers ROBOCACHE_NEED_GPU=1
# for torchcodec: FFmpeg, and CUDA's nvrtc from torch's wheels
LD_LIBRARY_PATH=$WHERE/peers/lib:$($PY -c 'import glob, site; print(":".join(d for s in site.getsitepackages() for d in glob.glob(s + "/nvidia/cu*/lib") + glob.glob(s + "/nvidia/cuda_nvrtc/lib")))'):$LD_LIBRARY_PATH
export LD_LIBRARY_PATH

step() { # step COMMAND: records a command, its output and its exit status
	local begin rc
	begin=$(date +%s)
	{
		printf '\n## `%s`\n\n' "$1"
		timeout -k 5 "$LIMIT" bash -o pipefail -c "$1" 2>&1 | grep -v '^=== \(RUN\|PAUSE\|CONT\)'
		rc=${PIPESTATUS[0]}
		printf '\n%s, %d s\n' "$([ "$rc" = 0 ] && echo passed || echo "FAILED ($rc)")" $(($(date +%s) - begin))
	} | tee -a "$record" >"$WHERE/step"
	cat "$WHERE/step"
	grep -q '^FAILED (' "$WHERE/step" && failed=1
}

# adds the pieces in this folder to earlier ones, and unpacks the packages whose pieces are complete
unpack() {
	local name all to
	find "$here" -maxdepth 1 -name '*.tar.xz*' -exec cp {} "$WHERE/parts/" \;
	for name in base sets sets1080 torchcodec dali; do
		all=("$WHERE/parts/$name".tar.xz*)
		case ${all[0]} in
		*.xz\*) continue ;;
		*of*) [ ${#all[@]} = "${all[0]##*of}" ] || continue ;;
		esac
		to=$WHERE
		case $name in torchcodec | dali) to=$WHERE/peers ;; esac
		mkdir -p "$to"
		cat "${all[@]}" | $PY -c 'import sys, tarfile; tarfile.open(fileobj=sys.stdin.buffer, mode="r|xz").extractall(sys.argv[1], filter="tar")' "$to" && rm "${all[@]}" && echo "unpacked $name"
	done
	ls "$WHERE" "$WHERE/parts"
}

check() {
	step "nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader; nproc; cat $WHERE/revision; free -g | head -2; $PY -c 'import sys, torch; print(sys.version.split()[0], torch.__version__, torch.cuda.get_device_name())'"
	step "$PY -m robocache self-test 2>&1 | tail -20"
	step "$PY - <<'P'
import glob, time
from torchcodec.decoders import VideoDecoder
import torchcodec
name = sorted(glob.glob('$WHERE/sets/h264_g8/videos/*/*/*.mp4'))[0]
for device in ('cpu', 'cuda'):
    d = VideoDecoder(name, device=device, seek_mode='exact')
    f = d.get_frames_at([5, 40, 41]).data
    print('torchcodec', torchcodec.__version__, device, f.shape, f.device, d.cpu_fallback, f.float().mean().item())
P"
	step "$PY - <<'P'
import glob, torch
import nvidia.dali
from nvidia.dali import fn, pipeline_def
name = sorted(glob.glob('$WHERE/sets/h264_g8/videos/*/*/*.mp4'))[0]
@pipeline_def
def p():
    return tuple(fn.readers.video(device='gpu', filenames=[name], labels=[0], sequence_length=1, enable_frame_num='scalar', random_shuffle=True, initial_fill=8))
q = p(batch_size=4, num_threads=1, device_id=0)
q.build()
video, label, number = q.run()
v = torch.from_dlpack(video.as_tensor())
print('dali', nvidia.dali.__version__, v.shape, v.device, torch.from_dlpack(number.as_tensor()).flatten().tolist(), v.float().mean().item())
P"
}

limits() {
	local set clips=()
	mkdir -p "$WHERE/clips"
	for set in "${@:-h264_g8}"; do
		cp "$(find "$WHERE/sets/$set/videos" -name '*.mp4' | sort | head -1)" "$WHERE/clips/$set.mp4" && clips+=("$set")
	done
	step "ROBOCACHE_NVDEC_CLIPS=$WHERE/clips ROBOCACHE_NVDEC_LIMITS=$(IFS=, && echo "${clips[*]}") $WHERE/nvdec.test -test.v -test.run 'Limits|SequentialTimes' | cut -c1-400"
}

load() { # load SET…: measures each combination of SIZES, SHUFFLES and DECODES
	local set shuffle decode size
	for set in "$@"; do
		for size in ${SIZES:-stored 224x224}; do
			for shuffle in ${SHUFFLES:-global pool}; do
				for decode in ${DECODES:-gpu cpu auto}; do
					step "$WHERE/robocache-bench load $WHERE/sets/$set --python $PY --runners robocache --device cuda --decode $decode --shuffle $shuffle $([ $size = stored ] || echo --image-size $size) --batch-size ${BATCH:-64} --prefetch 8 --workers $THREADS --duration ${WINDOW}s --warmup ${WARMUP:-100} --repeats 1 --probes 0 --check-frames 0 --resume=false --out $WHERE/out/load-$set-$size-$shuffle-$decode >$WHERE/said; rc=\$?; cat $WHERE/said | grep -v '^\$' | cut -c1-600; $PY -c 'import json, sys; k = json.load(open(sys.argv[1]))[\"results\"][0][\"merged\"]; print(\"ROW\", \"$set $size $shuffle $decode\", round(k[\"samples_per_s\"]), \"samples/s\", round(1000 * k[\"cpu_s_per_sample\"], 3), \"CPU s per 1000\", round(k[\"frames_decoded_per_s\"] or 0), \"decoded/s\")' $WHERE/out/load-$set-$size-$shuffle-$decode/load.json; exit \$rc"
				done
			done
		done
	done
}

train() { # train SET…: uses RUNNERS, SIZE and TRAIN_OPTIONS
	local set big
	for set in "$@"; do
		big=$WHERE/sets/$set-x8
		[ -e "$big/meta/info.json" ] || step "$PY -m robocache convert $WHERE/sets/$set $big --frames none --episodes $($PY -c "import json; n = json.load(open('$WHERE/sets/$set/meta/info.json'))['total_episodes']; print(','.join(str(i % n) for i in range(8 * n)))") | tail -3"
		[ -e "$big/meta/info.json" ] || big=$WHERE/sets/$set
		step "$WHERE/robocache-bench train $big --python $PY --model resnet18 --image-size ${SIZE:-224x224} --batch-size 64 --runners ${RUNNERS:-robocache,robocache-pool,robocache-gpu,robocache-gpu-pool,torchcodec-cuda,dali} --workers $WORKERS ${TRAIN_OPTIONS:---graph --warmup 120} --repeats 1 --timeout ${RUN_LIMIT:-75s} --out $WHERE/out/train-$set"
	done
}

words=()
for word in "$@" --; do
	if [ "$word" != -- ]; then
		words+=("$word")
	elif [ ${#words[@]} -gt 0 ]; then
		case ${words[0]} in
		unpack | check | limits | load | train) "${words[@]}" ;;
		*) echo "run.sh: unknown step ${words[0]}" >&2; failed=1 ;;
		esac
		words=()
	fi
done
find "$WHERE/out" \( -name load.json -o -name load.csv -o -name 'train.*' -o -name rows.jsonl \) 2>/dev/null | tar -C / -czf "$OUT/results.tar.gz" -P -T - 2>/dev/null
exit $failed
