#!/bin/sh
# Makes one dataset of the shards, when their arrays are through.
'/opt/robo cache/robocache' commit --manifest '/data/it'\''s a $plan.json'
code=$?
[ "$code" -ne 3 ] || code=0 # done, with skipped episodes, which status counts
exit "$code"
