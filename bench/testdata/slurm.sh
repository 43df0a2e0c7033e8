#!/bin/sh
set -eu
job_mmap_local=$(sbatch \
  --parsable \
  --job-name=dlbench_mmap_local \
  --nodes=1 \
  --ntasks-per-node=1 \
  --gpus-per-node=1 \
  --cpus-per-task=12 \
  --mem=64G \
  --time=01:00:00 \
  --output=%x-%j.out \
  --account=lab \
  --partition=gpu \
  '--wrap='\''/opt/robo cache/robocache-bench'\'' load '\''/data/it'\''\'\'''\''s here'\'' --scenario mmap_local --duration=1m0s '\''--out=$HOME/a b/mmap_local'\'' --runners=engine,robocache')
job_mmap_local=${job_mmap_local%%;*}
echo "job: $job_mmap_local"
job_mmap_local_maxworkers=$(sbatch \
  --parsable \
  --job-name=dlbench_mmap_local_maxworkers \
  --nodes=1 \
  --ntasks-per-node=1 \
  --gpus-per-node=1 \
  --cpus-per-task=92 \
  --mem=128G \
  --time=01:00:00 \
  --output=%x-%j.out \
  --account=lab \
  --partition=gpu \
  --dependency=afterany:"$job_mmap_local" \
  '--wrap='\''/opt/robo cache/robocache-bench'\'' load '\''/data/it'\''\'\'''\''s here'\'' --scenario mmap_local_maxworkers --duration=1m0s '\''--out=$HOME/a b/mmap_local_maxworkers'\'' --runners=engine,robocache')
job_mmap_local_maxworkers=${job_mmap_local_maxworkers%%;*}
echo "job: $job_mmap_local_maxworkers"
job_stream_hub=$(sbatch \
  --parsable \
  --job-name=dlbench_stream_hub \
  --nodes=1 \
  --ntasks-per-node=1 \
  --gpus-per-node=1 \
  --cpus-per-task=12 \
  --mem=250G \
  --time=03:00:00 \
  --output=%x-%j.out \
  --account=lab \
  --partition=gpu \
  --dependency=afterany:"$job_mmap_local_maxworkers" \
  '--wrap='\''/opt/robo cache/robocache-bench'\'' load '\''/data/it'\''\'\'''\''s here'\'' --scenario stream_hub --duration=1m0s '\''--out=$HOME/a b/stream_hub'\'' --runners=engine,robocache')
job_stream_hub=${job_stream_hub%%;*}
echo "job: $job_stream_hub"
job_stream_bucket=$(sbatch \
  --parsable \
  --job-name=dlbench_stream_bucket \
  --nodes=1 \
  --ntasks-per-node=1 \
  --gpus-per-node=1 \
  --cpus-per-task=12 \
  --mem=250G \
  --time=03:00:00 \
  --output=%x-%j.out \
  --account=lab \
  --partition=gpu \
  --dependency=afterany:"$job_stream_hub" \
  '--wrap='\''/opt/robo cache/robocache-bench'\'' load '\''/data/it'\''\'\'''\''s here'\'' --scenario stream_bucket --duration=1m0s '\''--out=$HOME/a b/stream_bucket'\'' --runners=engine,robocache')
job_stream_bucket=${job_stream_bucket%%;*}
echo "job: $job_stream_bucket"
job_stream_bucket_2node=$(sbatch \
  --parsable \
  --job-name=dlbench_stream_bucket_2node \
  --nodes=2 \
  --ntasks-per-node=1 \
  --gpus-per-node=1 \
  --cpus-per-task=12 \
  --mem=250G \
  --time=03:00:00 \
  --output=%x-%j.out \
  --account=lab \
  --partition=gpu \
  --dependency=afterany:"$job_stream_bucket" \
  '--wrap=srun --ntasks-per-node=1 --kill-on-bad-exit=1 sh -c '\''RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec '\''\'\'''\''/opt/robo cache/robocache-bench'\''\'\'''\'' load '\''\'\'''\''/data/it'\''\'\'''\''\'\''\'\'''\'''\''\'\'''\''s here'\''\'\'''\'' --scenario stream_bucket_2node --duration=1m0s '\''\'\'''\''--out=$HOME/a b/stream_bucket_2node'\''\'\'''\'' --runners=engine,robocache'\''')
job_stream_bucket_2node=${job_stream_bucket_2node%%;*}
echo "job: $job_stream_bucket_2node"
echo "last job: $job_stream_bucket_2node"
