#!/usr/bin/env bash
# Fuzzes each parser: FUZZTIME a target (10m), JOBS targets at a time (one a core), those whose "package target" matches ONLY.
# A line a target: executions, seconds, what the corpus grew to. A find is written into the package's testdata/fuzz, and fails the run at its end.
set -uo pipefail
cd "$(dirname "$0")/../.."
go=${GO:-go}
time=${FUZZTIME:-1m} jobs=${JOBS:-$(nproc)} only=${ONLY:-.}
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
module=$($go list -m)
corpus=$($go env GOCACHE)/fuzz

one() { # PACKAGE BINARY TARGET
  local log="$here/${2##*/}.$3.log" dir
  dir=$($go list -f '{{.Dir}}' "$1")
  (cd "$dir" && "$2" -test.run '^$' -test.fuzz "^$3\$" -test.fuzztime "$time" -test.fuzzminimizetime 1x -test.parallel 1 -test.fuzzcachedir "$corpus/$1") >"$log" 2>&1
  local rc=$?
  echo "$([ $rc = 0 ] && echo ok || echo FOUND) ${1#"$module"/} $3: $(grep -o 'elapsed: .*' "$log" | tail -1)"
  [ $rc = 0 ] || { tail -40 "$log"; touch "$here/found"; }
}

for p in $($go list ./...); do
  targets=$(cd "$($go list -f '{{.Dir}}' "$p")" && grep -hos '^func Fuzz[A-Za-z0-9_]*' ./*_test.go | sed 's/^func //')
  mine=
  for t in $targets; do echo "$p $t" | grep -qE "$only" && mine="$mine $t"; done
  [ -n "$mine" ] || continue
  bin="$here/$(echo "${p#"$module"/}" | tr / -).test"
  # -fuzz makes -c build with the coverage counters that steer the fuzzer.
  $go test -c -fuzz . -o "$bin" "$p" || { touch "$here/found"; continue; }
  for t in $mine; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    one "$p" "$bin" "$t" &
  done
done
wait
[ ! -e "$here/found" ]
