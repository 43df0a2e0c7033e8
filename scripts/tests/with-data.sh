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
if [ -s "$1" ]; then
  packages=$(cut -d' ' -f1 "$1" | sort -u)
  for package in $packages; do
    tests=$(awk -v p="$package" '$1 == p { print $2 }' "$1" | sort -u | paste -sd'|')
    module=. path=$package
    case $package in ./bench | ./bench/*) module=bench path=.${package#./bench} ;; esac # a module of its own
    "$GO" test -C "$module" -vet=off -timeout 20m -run "^($tests)\$" "$path" || status=1
  done
fi
if [ -s "$2" ]; then
  sort -u "$2" >"$2.sorted"
  # The ids are relative to the folder with pyproject.toml.
  (cd python && PYTHONPATH=. ../.venv/bin/python -m pytest -q -rs "@$2.sorted") || status=1
fi
exit $status
