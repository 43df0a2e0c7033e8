#!/usr/bin/env bash
# Runs the tests again that an earlier run skipped because it had no shared data.
#   with-data.sh GO_LIST PYTHON_LIST
# GO_LIST has a line "package test" per use of missing data. internal/tests/realdata and
# bench/internal/realdata write it. PYTHON_LIST has the node ids of the skipped tests, written by
# python/tests/conftest.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
GO=${GO:-go}
if [ ! -d "$ROBOCACHE_TESTDATA" ]; then
  echo "with-data: skipped, no folder $ROBOCACHE_TESTDATA (set ROBOCACHE_TESTDATA)"
  exit 0
fi
status=0
if [ -s "$2" ]; then
  sort -u "$2" >"$2.sorted"
  # The ids are relative to the folder with pyproject.toml. Without -m, the background process would
  # ignore SIGINT, which tests send.
  set -m
  (cd python && PYTHONPATH=. ../.venv/bin/python -m pytest -q -rs "@$2.sorted") >"$2.log" 2>&1 &
  python_tests=$!
  set +m
fi
# run_package LIST PACKAGE: runs the listed tests of a package.
run_package() {
  local tests module=. path=$2 out code=0
  tests=$(awk -v p="$2" '$1 == p { print $2 }' "$1" | sort -u | paste -sd'|')
  case $2 in ./bench | ./bench/*) module=bench path=.${2#./bench} ;; esac # a module of its own
  out=$("$GO" test -C "$module" -vet=off -timeout 20m -run "^($tests)\$" "$path" 2>&1) || code=1
  echo "$out"
  return $code
}
if [ -s "$1" ]; then
  export -f run_package
  export GO
  cut -d' ' -f1 "$1" | sort -u | xargs -P2 -I{} bash -c 'run_package "$@"' - "$1" {} || status=1
fi
if [ -s "$2" ]; then
  wait $python_tests || status=1
  cat "$2.log"
fi
exit $status
