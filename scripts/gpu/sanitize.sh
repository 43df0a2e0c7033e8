#!/usr/bin/env bash
# Runs compute-sanitizer over the vectors and a part of the random sweeps. Its tools find accesses
# outside memory, races in shared memory, reads of uninitialized memory, and wrong barriers. Run it
# next to cuda.test, as carry.sh lays the files out. TOOLS selects tools; SWEEP is the number of
# random operations.
cd "$(dirname "$0")/kernel/cuda" || exit 1
export ROBOCACHE_NEED_GPU=1 ROBOCACHE_SWEEP=${SWEEP:-300}
command -v compute-sanitizer >/dev/null || PATH=$PATH:/usr/local/cuda/bin
failed=0
for tool in ${TOOLS:-memcheck racecheck initcheck synccheck}; do
	echo "== $tool"
	# The tool's own exit status counts, so that a kernel's error cannot look like a passed test.
	timeout -k 5 "${LIMIT:-280}" compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 5 ./cuda.test -test.run 'TestConformOnGPU|TestLaunchOnGPU|TestFlowOnGPU' 2>&1 | grep -v 'conform_test.go' | head -${LINES_OF:-60}
	[ "${PIPESTATUS[0]}" = 0 ] || failed=1
done
exit $failed
