#!/usr/bin/env bash
# Compiles kernel/cuda/src into kernel/cuda/images/data. No GPU, driver or toolkit is needed. The
# compiler is NVRTC from a Python package, which is kept in .build. The same version gives the same
# bytes on every machine. Compiles only changed sources, or all with -f.
set -euo pipefail
cd "$(dirname "$0")/.."
version=12.8.93
if [ ! -e .build/nvrtc/nvidia_cuda_nvrtc_cu12-$version.dist-info ]; then
	rm -rf .build/nvrtc
	python3 -m pip install -q --no-deps --target .build/nvrtc nvidia-cuda-nvrtc-cu12==$version
fi
CGO_ENABLED=0 go test ./kernel/cuda/images -count=1 -timeout 60m -v -run TestUpdate -args -update "$@"
