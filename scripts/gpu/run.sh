#!/usr/bin/env bash
# Checks and times everything on a machine with a GPU, with the files of carry.sh next to this one.
# Nothing is built. The raw output with its commands goes to the terminal and to $OUT/record.md
# (default: this folder), which docs/gpu keeps.
#   bash run.sh [check] [time] [python] [augment] [sanitize] [shards]    default: check time python
cd "$(dirname "$0")" || exit 1
OUT=${OUT:-.}
LIMIT=${LIMIT:-300} # seconds per step
export ROBOCACHE_NEED_GPU=1
record=$OUT/record.md
failed=0
words=${*:-check time python}

step() { # step TITLE COMMAND…
	local title=$1 begin rc
	shift
	begin=$(date +%s)
	{
		printf '\n## %s\n\n`%s`\n\n```\n' "$title" "$*"
		timeout -k 5 "$LIMIT" bash -c "$*" 2>&1 | grep -v '^=== \(RUN\|PAUSE\|CONT\)'
		rc=${PIPESTATUS[0]}
		printf '```\n\n%s, %d s\n' "$([ "$rc" = 0 ] && echo passed || echo "FAILED ($rc)")" $(($(date +%s) - begin))
	} >"$OUT/step" 2>&1
	tee -a "$record" <"$OUT/step"
	grep -q '^FAILED (' "$OUT/step" && failed=1
	grep -q '^passed' "$OUT/step" || failed=1
	rm -f "$OUT/step"
}

{
	printf '# %s, %s, revision %s\n\n```\n' "$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)" "$(date -u +%F)" "$(cat revision 2>/dev/null)"
	nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,power.limit --format=csv
	echo "$(nproc) cores, $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2-), Linux $(uname -r)"
	python3 -c 'import sys, torch; print("Python", sys.version.split()[0], "torch", torch.__version__)' 2>&1 | tail -1
	printf '```\n'
} | tee "$record"

cuda='cd kernel/cuda && ./cuda.test'
for word in $words; do
	case $word in
	check)
		step "The host side, and the vectors and random sweeps on the device" "$cuda -test.v -test.run 'OnGPU|TestFuse|TestOpen|TestGraph\$|ErrorsOfLaunches|Contexts|TestOwns|TestMemory|ManyElements'"
		step "Page-locked memory" "cd kernel/cuda && ./cudahost.test -test.v -test.run ThisMachine"
		step "Self-test" "./robocache self-test"
		;;
	time)
		step "Launches, from Go" "$cuda -test.run xxx -test.bench BenchmarkLaunch -test.benchtime 20000x"
		step "Nodes of graphs; copies" "$cuda -test.v -test.run 'TestGraphNodes|TestCopyRates'"
		step "A million trajectories from page-locked memory and back" "$cuda -test.v -test.run 'TestTrajectories'"
		step "The table of bars, and the curves" "PYTHONPATH=\$PWD/python ./robocache-bench ops --device cuda --sweep --python python3 --out $OUT/ops >$OUT/ops.md || test \$? = 3"
		;;
	python)
		[ -d python ] && step "Python" "PYTHONPATH=python python3 -m pytest -q -rs -p no:cacheprovider python/tests/test_ops_cuda.py python/tests/test_ops.py python/tests/test_ops_vectors.py"
		;;
	augment) # images only: about ten seconds
		step "Vectors and random sweeps of augmented images, also in graphs" "$cuda -test.v -test.run 'TestImagesOnGPU'"
		step "Augmentation beside a copy of the same bytes" "$cuda -test.v -test.run 'TestImageTimes'"
		[ -d python ] && step "Batches of the loader" "ROBOCACHE_CUDA_SET=\$PWD/data/g1_h264_v30 PYTHONPATH=python python3 -m pytest -q -rs -p no:cacheprovider python/tests/test_cuda.py -k finishes"
		;;
	shards)
		step "Two devices" "$cuda -test.v -test.run 'TestShards|TestContexts'"
		;;
	sanitize)
		step "compute-sanitizer" "bash sanitize.sh"
		;;
	*)
		echo "run.sh: unknown step $word" >&2
		failed=1
		;;
	esac
done
exit $failed
