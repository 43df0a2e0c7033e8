#!/bin/sh
# Runs one shard of a manifest as a task of an array job that submit.sh submits.
# $1 is added to the array index to get the shard number.
shard=$(( ${1:-0} + SLURM_ARRAY_TASK_ID ))
child=
cancelled=
# Slurm sends USR1 to this shell before the time limit, and TERM on scancel and preemption.
# On TERM, the worker keeps completed work that can be resumed and exits with 75.
trap '[ -z "$child" ] || kill -TERM "$child" 2>/dev/null' USR1
trap 'cancelled=1; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM INT
'/opt/robo cache/robocache' run --manifest '/data/it'\''s a $plan.json' --shard "$shard" &
child=$!
wait "$child"
code=$?
while kill -0 "$child" 2>/dev/null; do # a signal interrupted wait; the worker still runs
  wait "$child"
  code=$?
done
case $code in
0 | 3) exit 0 ;; # 3 means that episodes were skipped; the receipt counts them
2 | 10 | 11 | 12 | 42 | 70) exit "$code" ;; # a retry cannot help
esac
# A canceled task is not requeued. Slurm itself requeues a preempted one.
if [ -z "$cancelled" ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 5 ]; then
  echo "shard $shard: exit code $code, will be retried" >&2
  scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" && exit 0
fi
exit "$code"
