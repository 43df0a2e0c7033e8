#!/bin/sh
# 1007 of 2100 shards: 3 array(s), followed by a commit.
set -eu
cd "$(dirname "$0")"
mkdir -p logs
jobs= last=
array() { # indices, offset
  last=$(sbatch --parsable --job-name=robocache --array="$1"%64 --requeue --open-mode=append \
    --signal=B:USR1@120 --output=logs/%x-%A_%a.log ${last:+"--dependency=afterany:$last"} \
    --partition=cpu '--comment=it'\''s' --gpus=1 ./array.sh "$2")
  last=${last%%;*} # "job;cluster"
  jobs=$jobs:$last
  echo "array $last"
}
array 0-2,5,998-999 0
array 0-999 1000
array 99 2000
commit=$(sbatch --parsable --job-name=robocache-commit --requeue --open-mode=append --kill-on-invalid-dep=yes \
  --output=logs/%x-%j.log ${jobs:+"--dependency=afterok$jobs"} --partition=cpu '--comment=it'\''s' ./commit.sh)
echo "commit ${commit%%;*}"
