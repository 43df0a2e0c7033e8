#!/bin/sh
# Makes one dataset of the shards, when their arrays are through.
'/opt/robo cache/robocache' commit --manifest '/data/it'\''s a $plan.json'
code=$?
[ "$code" -ne 3 ] || code=0 # done, with findings: they are in this log, and status gives 3
exit "$code"
