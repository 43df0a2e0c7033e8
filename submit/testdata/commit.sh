#!/bin/sh
# Commits the shards as one dataset after their arrays have ended.
'/opt/robo cache/robocache' commit --manifest '/data/it'\''s a $plan.json'
code=$?
[ "$code" -ne 3 ] || code=0 # 3 means done with findings; this log contains them, and status returns 3
exit "$code"
