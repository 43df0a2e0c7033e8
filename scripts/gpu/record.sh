#!/usr/bin/env bash
# Makes the record in docs/gpu from the output of run.sh on a GPU machine (its $OUT): kernels.md
# (tables), record.md (raw output with the commands), all figures as CSV, and the curves as plots.
#   scripts/gpu/carry.sh .build/gpu      here
#   OUT=out bash run.sh                  on the GPU machine
#   scripts/gpu/record.sh out            here
set -euo pipefail
from=$(realpath "${1:?the folder that run.sh wrote}")
cd "$(dirname "$0")/../.."
[ -s "$from/record.md" ] || { echo "record: no record.md in $from" >&2; exit 1; }
for f in csv svg; do
	for p in "$from"/ops/ops-cuda*."$f"; do [ -e "$p" ] && cp "$p" docs/gpu/; done
done
{
	cat <<'EOS'
# The kernels on a GPU

Made by `scripts/gpu/record.sh` of what `scripts/gpu/run.sh` printed on the machine: here the tables; everything as it came is in [record.md](record.md). Every figure is in
[ops-cuda.csv](ops-cuda.csv). What the rows are, and what was tried: [../PERFORMANCE.md](../PERFORMANCE.md).

EOS
	[ -s "$from/ops/ops-cuda.md" ] && cat "$from/ops/ops-cuda.md"
	[ -e docs/gpu/ops-cuda-curve-cold.svg ] && printf '\n![GB/s over bytes, cold](ops-cuda-curve-cold.svg)\n\n![GB/s over bytes, hot](ops-cuda-curve-hot.svg)\n'
} >docs/gpu/kernels.md
{
	printf '# What the GPU machine printed\n\nMade by `scripts/gpu/record.sh`. The tables: [kernels.md](kernels.md).\n\n---\n\n'
	cat "$from/record.md"
} >docs/gpu/record.md
wc -l docs/gpu/kernels.md docs/gpu/record.md
