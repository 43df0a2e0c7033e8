#!/usr/bin/env bash
# Prints the coverage of the Go tests in a lone clone and with the shared data: the totals, and the
# packages that differ by more than three points.
set -uo pipefail
cd "$(dirname "$0")/../.."
go=${GO:-go} out=${OUT:-$(mktemp -d)}
packages=${*:-./...}
measure() { # NAME DATA
  ROBOCACHE_TESTDATA=$2 $go test -timeout 30m -coverpkg=./... -coverprofile="$out/$1.cover" $packages >"$out/$1.log" 2>&1 || { grep -E '^(--- FAIL|FAIL|panic)' "$out/$1.log" >&2; echo "cover: tests failed ($1); the figures cover the tests that ran" >&2; }
}
measure clone /nonexistent
measure data "${ROBOCACHE_TESTDATA:-$PWD/../shared/data}"
# A block counts once. It is covered if any test binary covered it.
sum() {
  awk 'NR > 1 && /^mode/ { next } /^mode/ { next } { split($1, a, ":"); n[$1] = $2; if ($3 > 0) hit[$1] = 1 }
    END { for (b in n) { p = b; sub(/\/[^\/]*$/, "", p); t[p] += n[b]; T += n[b]; if (b in hit) { c[p] += n[b]; C += n[b] } }
      printf "total %.1f\n", 100 * C / T; for (p in t) printf "%s %.1f\n", p, 100 * c[p] / t[p] }' "$1" | sort
}
join <(sum "$out/clone.cover") <(sum "$out/data.cover") |
  awk '$1 == "total" { printf "lone clone %.1f %%, with the shared data %.1f %%: %.1f points\n", $2, $3, $3 - $2; next } $3 - $2 > 3 { printf "  %-60s %5.1f %5.1f\n", $1, $2, $3 }'
