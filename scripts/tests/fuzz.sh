#!/usr/bin/env bash
# Fuzzes each parser: FUZZTIME per target (for example 10m), JOBS targets at a time (default: one
# per core). ONLY selects targets by a pattern over "package target". Prints a line per target with
# executions, seconds and the size of the corpus. An input that fails is written to the package's
# testdata/fuzz, and the script fails at its end.
set -uo pipefail
cd "$(dirname "$0")/../.."
go=${GO:-go}
time=${FUZZTIME:-1m} jobs=${JOBS:-$(nproc)} only=${ONLY:-.}
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
module=$($go list -m)
corpus=$($go env GOCACHE)/fuzz

fuzz_target() { # fuzz_target PACKAGE BINARY TARGET
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
  # With -fuzz, -c adds the coverage counters that guide the fuzzer.
  $go test -c -fuzz . -o "$bin" "$p" || { touch "$here/found"; continue; }
  for t in $mine; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    fuzz_target "$p" "$bin" "$t" &
  done
done
wait
[ ! -e "$here/found" ]
