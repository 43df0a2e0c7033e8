#!/usr/bin/env bash
# Installs the engines that tests run shards on: Slurm and Prometheus from Debian, Ray in a Python environment of its own (.build/ray). What cannot be
# installed is said, and its tests skip.
set -uo pipefail
cd "$(dirname "$0")/.."
sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo -n)
export DEBIAN_FRONTEND=noninteractive
if ! { command -v slurmctld && command -v slurmd && command -v munged && command -v prometheus; } >/dev/null; then
  { "${sudo[@]}" timeout 120 apt-get -q update && "${sudo[@]}" timeout 300 apt-get -q install -y --no-install-recommends slurm-wlm munge prometheus; } >/dev/null || echo "engines: no Slurm or no Prometheus" >&2
fi
if ! .build/ray/bin/python -c 'import ray.data, ray.train, numpy, pytest, yaml' 2>/dev/null; then
  mkdir -p .build
  { "$(readlink -f .venv/bin/python || echo python3)" -m venv .build/ray &&
    timeout 600 .build/ray/bin/pip install -q --disable-pip-version-check -r python/requirements-ray.txt; } || { echo "engines: no Ray" >&2; exit 0; }
fi
# Behind its own packages those of .venv: torch, and lerobot for Ray's own reader.
[ ! -x .venv/bin/python ] || .venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$(.build/ray/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/zz-venv.pth"
