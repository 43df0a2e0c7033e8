#!/bin/sh
# One shard of a manifest, as a task of an array: submit.sh says how it is called. $1 is what the array's indices lack to the shards' numbers.
shard=$(( ${1:-0} + SLURM_ARRAY_TASK_ID ))
child=
cancelled=
# Slurm signals: before the time limit (USR1, this shell alone), on scancel and preemption (TERM). The worker leaves what can be resumed, and exits 75.
trap '[ -z "$child" ] || kill -TERM "$child" 2>/dev/null' USR1
trap 'cancelled=1; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM INT
'/opt/robo cache/robocache' run --manifest '/data/it'\''s a $plan.json' --shard "$shard" &
child=$!
wait "$child"
code=$?
while kill -0 "$child" 2>/dev/null; do # a signal ended the wait, not the worker
  wait "$child"
  code=$?
done
case $code in
0 | 3) exit 0 ;; # 3: episodes were skipped; the receipt counts them
2 | 10 | 11 | 12 | 42 | 70) exit "$code" ;; # no retry helps
esac
# What was cancelled stays so; what was preempted Slurm requeues itself.
if [ -z "$cancelled" ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 5 ]; then
  echo "shard $shard: exit code $code, to be tried again" >&2
  scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" && exit 0
fi
exit "$code"
