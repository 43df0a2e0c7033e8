#!/usr/bin/env bash
# Installs the engines that the tests of shards and of live transports run on. A failure is
# reported, and its tests skip.
#   engines.sh slurm   Slurm and Prometheus, from Debian
#   engines.sh ray     Ray, in a Python environment of its own, .build/ray
#   engines.sh ros     ROS 2 in a Python environment of its own, .build/ros, and Cyclone DDS
#   engines.sh         all
set -uo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-slurm}" = slurm ] && ! { command -v slurmctld && command -v slurmd && command -v munged && command -v prometheus; } >/dev/null; then
  sudo=()
  [ "$(id -u)" -eq 0 ] || sudo=(sudo -n)
  export DEBIAN_FRONTEND=noninteractive
  mkdir -p .build
  exec 9>.build/apt.lock # see deps.sh
  flock 9
  { "${sudo[@]}" timeout 120 apt-get -q update && "${sudo[@]}" timeout 300 apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends slurm-wlm munge prometheus; } </dev/null >/dev/null ||
    echo "engines: cannot install Slurm and Prometheus; their tests skip" >&2
  exec 9>&-
fi
if [ "${1:-ros}" = ros ]; then scripts/ros.sh; fi
[ "${1:-ray}" = ray ] || exit 0
if ! .build/ray/bin/python -c 'import ray.data, ray.train, numpy, pytest, yaml' 2>/dev/null; then
  mkdir -p .build
  { "$(readlink -f .venv/bin/python || echo python3)" -m venv .build/ray &&
    timeout 600 .build/ray/bin/pip install -q --disable-pip-version-check -r python/requirements-ray.txt; } </dev/null || { echo "engines: cannot install Ray; its tests skip" >&2; exit 0; }
fi
# The packages of .venv come after Ray's own: torch, and lerobot for ray.data.read_lerobot.
[ ! -x .venv/bin/python ] || .venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$(.build/ray/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/zz-venv.pth"
