# The main commands are `make demo` and `make test`. They install or build everything they need.
SHELL := /bin/bash
GO ?= go
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
# Only robocache_* is exported. PyAV and torchcodec load their own FFmpeg into the same process, so
# symbols of ours must stay hidden.
SO_LDFLAGS := $(LDFLAGS) -extldflags "-Wl,--exclude-libs,ALL -Wl,--version-script=$(CURDIR)/cmd/librobocache/exports.map"
SO := python/robocache/_lib/librobocache.so
export ROBOCACHE_TESTDATA ?= $(abspath ../shared/data)
PY := .venv/bin/python
# The compiler spends a fifth of its CPU time on collecting garbage unless its heap may grow. Programs
# that it builds, and tests, are not affected.
export GOFLAGS := $(GOFLAGS) '-toolexec=env GOGC=400'

.PHONY: help deps browser qemu view-bench native build build-bench static lib docs wheels test-wheels test-arm64 test-containers release core peers prepare docs-tools ros demo lib-demo servers minio test check-go test-all test-stores test-fast test-fast-go test-fast-python test-data test-go test-race test-race-all test-python cover test-tfds test-zarr lint fuzz engines test-ray test-slurm test-engines soak bench performance clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

deps: ## install missing system packages
	@scripts/deps.sh

browser: ## install the browser for the tests of `robocache view`; without it they skip
	@scripts/deps.sh browser || echo "browser: cannot install one; the tests of the page skip"

qemu: ## install qemu for the arm64 test of the kernels; without it the test skips
	@scripts/deps.sh qemu || echo "qemu: cannot install it; the arm64 test of the kernels skips"

native: deps ## build the static decode libraries (once)
	@scripts/native.sh || { pkg-config --exists libavcodec libswscale && echo "native: build failed; linking the system's FFmpeg instead"; }

# Without -trimpath, so that tests, lint and this program share Go's build cache.
build: native ## build bin/robocache and the C library of the Python package
	@mkdir -p bin
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/robocache ./cmd/robocache
	@$(MAKE) --no-print-directory lib

# bench is a Go module of its own, so ./... in the root does not include it.
build-bench: native ## build bin/robocache-bench
	@mkdir -p bin
	$(GO) build -C bench -ldflags '$(LDFLAGS)' -o ../bin/robocache-bench ./cmd/robocache-bench

static: native ## build bin/robocache-static: one static file with all readers and decoders
	$(GO) build -trimpath -tags netgo,osusergo -ldflags "$(LDFLAGS) -linkmode external -extldflags -static" -o bin/robocache-static ./cmd/robocache

lib: native
	$(GO) build -trimpath -buildmode=c-shared -ldflags '$(SO_LDFLAGS)' -o $(SO) ./cmd/librobocache
	@rm -f $(SO:.so=.h)
	@cp video/jpegxl/data/COPYING.* python/robocache/_lib/; cp .build/native/COPYING.* python/robocache/_lib/ 2>/dev/null || true

wheels: ## build dist/*.whl for x86-64 and arm64 with zig: 15 minutes on two cores, less if the decoders are built
	@scripts/wheels.sh

docs: ## build dist/site: docs, Python API and Go packages as one site without external resources
	@scripts/venv.sh docs
	NO_MKDOCS_2_WARNING=1 .build/docs/bin/python -m mkdocs build --strict

test-wheels: wheels ## test the wheels on Debian 11, 13, testing and arm64 (qemu), and on restricted machines
	@scripts/tests/wheels.sh

test-arm64: ## test exact results and decoders on arm64 with qemu, once per release: 13 minutes on two cores
	@scripts/tests/arm64.sh

test-containers: ## build, run and measure the images of the Dockerfile with buildah, without Docker (as root)
	@scripts/tests/containers.sh

release: ## make dist/release-VERSION and the tag: wheels, binaries, man pages, SBOMs, notes (VERSION=1.2.3 ARGS=--dry-run)
	@VERSION='$(VERSION)' scripts/release.sh $(ARGS)

core: ## make .venv with torch, for the demo
	@scripts/venv.sh core

peers: ## make .venv with lerobot and its decoders too, the reference reader of the Go and Python tests
	@scripts/venv.sh peers

demo: ## show the main job: synth, inspect, doctor, load, train, contact sheet (in demo-out/)
	@scripts/demo.sh

# Builds the Python library as fast as possible. It links the system's FFmpeg unless .build/native is
# built. The extra macro separates the objects of the two FFmpegs in Go's build cache.
lib-demo:
	@if [ -f .build/native/video.built ]; then $(MAKE) --no-print-directory lib; else scripts/deps.sh demo && \
	  CGO_CFLAGS="-O2 -g -DROBOCACHE_SYSTEM_FFMPEG" $(GO) build -trimpath -buildmode=c-shared -ldflags '$(SO_LDFLAGS)' -o $(SO) ./cmd/librobocache; fi

# The Python tests use one core most of the time, so they run in parallel with lint and the Go tests.
test: prepare browser qemu ## run all tests, and the race detector on the core
	@$(MAKE) --no-print-directory -j2 --output-sync=target check-go test-python

check-go: # the Go half of `make test`
	@for stage in lint test-go test-race; do $(MAKE) --no-print-directory $$stage || exit; done

test-all: servers engines test test-engines test-race-all ## run also the longer race tests, and the object stores on real servers

# The servers take two minutes to build on two cores, so `make test` skips their tests. CI builds
# them. moto's S3 server is one of the peers.
SERVERS := .build/servers/versitygw .build/servers/fake-gcs-server
servers: $(SERVERS) ## build versitygw (S3) and fake-gcs-server, for the tests of object stores
minio: .build/servers/minio ## build MinIO too; it takes over four minutes of CPU, so no other target does
.build/servers/versitygw:
	GOBIN=$(abspath .build/servers) GOFLAGS=-mod=mod $(GO) install github.com/versity/versitygw/cmd/versitygw@v1.8.0
.build/servers/fake-gcs-server:
	GOBIN=$(abspath .build/servers) GOFLAGS=-mod=mod $(GO) install github.com/fsouza/fake-gcs-server@v1.56.1
.build/servers/minio:
	GOBIN=$(abspath .build/servers) GOFLAGS=-mod=mod $(GO) install github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c

test-stores: servers ## test object stores on real servers
	$(GO) test ./store/... ./format/delta
	$(GO) test -run ObjectStore ./internal/e2e ./shard

# Runs the compiler and the package installers in parallel, because they use different resources.
prepare:
	@$(MAKE) --no-print-directory -j3 --output-sync=target build peers docs-tools ros $(ALSO)

docs-tools:
	@scripts/venv.sh docs || echo "docs: cannot install mkdocs; the tests of the site skip"

ros: peers # its environment has the Python of .venv
	@scripts/engines.sh ros

# ELSEWHERE is a pattern of packages that another run tests. go vet is off, because lint runs it.
ELSEWHERE ?= ^$$
test-go: native
	@all=$$($(GO) list ./...) && set -x && $(GO) test -vet=off -timeout 20m $$(echo "$$all" | grep -vE '$(ELSEWHERE)')
	$(GO) test -C bench -vet=off -timeout 20m ./...

# Stores, caches and frames share the most memory between goroutines. Orders are computed by one
# goroutine, and the loader's tests request them from many.
test-race: native
	$(GO) test -vet=off -race -short -timeout 20m ./store/... ./cache/... ./loader ./loader/internal/arrivals ./loader/internal/buffers ./loader/internal/frames ./live ./quality ./query ./diff

# Omits the parsers below the formats. One goroutine reads their files, or the tests of the formats
# cover them.
test-race-all: native
	$(GO) test -vet=off -race -short -timeout 20m ./video/... $$($(GO) list ./format/... | grep -vE '/internal/(h5|pq|npy|zipdir|blosc)$$')

cover: native ## print the test coverage of a lone clone, and with the shared data
	@scripts/tests/cover.sh

# A separate target, because tensorflow-datasets has 1.8 GB.
test-tfds: native ## compare RLDS reading and writing with tensorflow-datasets (in .venv-tfds)
	@scripts/tests/venv-tfds.sh
	$(GO) test -count=1 -timeout 20m ./format/rlds

# diffusion_policy pins these versions, which need an older Python.
test-zarr: native ## open written Zarr with zarr 2.12.0 and numcodecs 0.10.2 (in .venv-zarr)
	@scripts/tests/venv-zarr.sh
	$(GO) test -count=1 ./format/zarr

# test-fast omits integration tests and sweeps over all kernels; -short reduces the others.
SLOW_PACKAGES := /(shard|submit|view|selftest|kernel/cuda|kernel/conform|kernel/tests/sweep|live/transport/dds|internal/architecture|internal/e2e|internal/cli)(/|$$)
# Tests of other packages that take seconds of CPU. The race detector runs them with -short.
SLOW_TESTS := OnDevice$$|StayOnDevice|KeptFramesAreTheSame|BadFiles$$|LeRobotReadsIt|MP4Gaps|MP4Refuses|PoolQuality|MixtureKeepsItsShares
test-fast: build ## run unit tests of Go and Python without peers: two minutes once built
	@$(MAKE) --no-print-directory -j2 --output-sync=target test-fast-go test-fast-python

test-fast-go:
	$(GO) test -vet=off -short -skip '$(SLOW_TESTS)' -timeout 10m $$($(GO) list ./... | grep -vE '$(SLOW_PACKAGES)')
	$(GO) test -C bench -vet=off -short -timeout 10m ./gpu ./report ./runners

test-fast-python:
	PYTHONPATH=python $(PY) -m pytest -q --fast -n 2 --dist loadfile python/tests

# LISTS is the folder of the lists `go` and `python` that a run without the data wrote (.ci/run).
test-data: lib
	@scripts/tests/with-data.sh $(LISTS)/go $(LISTS)/python

test-python: lib
	PYTHONPATH=python $(PY) -m pytest -q -rs python/tests

# golines and lint-changes look at what changed since CI_BASE only (see scripts/lint-changes.py).
TOOL := $(GO) tool -modfile=$(CURDIR)/tools/go.mod
lint: ## check formatting, go vet, staticcheck, plain English, and a build without cgo
	@out=$$($(TOOL) gofumpt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "gofumpt would change: $$out"; exit 1; }
	@changed=$$(scripts/lint-changes.py --files .go); test -z "$$changed" || { \
	  out=$$($(TOOL) golines -m 100 -t 4 --no-reformat-tags --base-formatter= -l $$changed); \
	  test -z "$$out" || { echo "golines would change: $$out"; exit 1; }; }
	@ruff=.venv/bin/ruff; test -x $$ruff || { echo "lint: no ruff in .venv: Python files are not checked"; exit 0; }; \
	  $$ruff format --check . && $$ruff check .
	scripts/lint-changes.py
	$(GO) vet ./...
	$(GO) vet -C bench ./...
	$(TOOL) staticcheck ./...
	cd bench && $(TOOL) staticcheck ./...
	CGO_ENABLED=0 $(GO) build ./...
	CGO_ENABLED=0 $(GO) build -C bench ./...

FUZZTIME ?= 60s
fuzz: ## fuzz each parser for a minute (FUZZTIME=10m; ONLY='h5|rlds' selects some; JOBS=2 at a time)
	@GO="$(GO)" FUZZTIME="$(FUZZTIME)" scripts/tests/fuzz.sh

engines: ## install Slurm, Prometheus, Ray and ROS 2, for the tests that use them
	@scripts/engines.sh

test-ray: lib ## test shards and Ray Data on a Ray cluster of two nodes (in .build/ray)
	@scripts/engines.sh ray
	@.build/ray/bin/python -c 'import ray.data' 2>/dev/null || { echo "test-ray: skipped, no Ray in .build/ray"; exit 0; }; \
	run() { PYTHONPATH=python timeout -k 10 $(RAYTIME) .build/ray/bin/python -m pytest -q -rs --show-capture=no "$$@" python/tests/test_ray.py; }; \
	run; code=$$?; [ $$code != 1 ] || { echo "test-ray: Ray has time limits, so the failed tests run once more, alone"; run --lf; code=$$?; }; \
	case $$code in 0) ;; 124 | 137) echo "test-ray: skipped, the tests did not end in $(RAYTIME) s; the machine is too slow" ;; *) exit $$code ;; esac

RAYTIME ?= 420
# -count=1: the tests run the program and the library, whose changes Go's test cache does not see.
test-slurm: servers ## test shards on a Slurm of two nodes, the dashboard's queries on Prometheus, and docs/cluster.md
	@scripts/engines.sh slurm
	$(GO) test -count=1 -timeout 15m ./submit ./metrics

test-engines: test-ray test-slurm ## test shards on real engines: Slurm, Ray, three launchers, Prometheus

soak: build build-bench ## run pools, caches, http, kills and resumes for 30 minutes (SOAK=2m: shorter), with all images checked
	@scripts/soak.sh

REPEATS ?= 5
REAL ?= $(or $(ROBOCACHE_TESTDATA),../shared/data)/g1_v30_exact
bench: build build-bench peers ## measure the figures of docs/PERFORMANCE.md into bench-out: 90 minutes on two idle cores (REPEATS=3: 60)
	bin/robocache-bench peers $(REAL) --all --repeats $(REPEATS) --out bench-out/peers || test $$? = 3
	bin/robocache-bench formats --all --repeats $(REPEATS) --out bench-out/formats || test $$? = 3
	for set in $(REAL) bench-out/sets/*/h264-g30 bench-out/sets/*/h264-g250; do \
	  bin/robocache-bench decode $$set --runners robocache,ffmpeg,torchcodec,pyav --repeats $(REPEATS) --out bench-out/decode-sequential-$$(basename $$set); \
	  bin/robocache-bench decode $$set --runners robocache,torchcodec,pyav --pattern random --count 300 --repeats $(REPEATS) --out bench-out/decode-random-$$(basename $$set); done
	bin/robocache-bench ops --sweep --rounds $(REPEATS) --out bench-out/ops || test $$? = 3
	bin/robocache-bench load $(REAL) --scenarios all --runners engine,robocache --repeats $(REPEATS) --duration 20s --explain --out bench-out/scenarios

view-bench: build browser ## measure the waiting times in the page of `robocache view`, for docs/dev/measurements.md
	ROBOCACHE_VIEW_BENCH=$(CURDIR)/bin/robocache $(GO) test -count=1 -timeout 20m -run '^TestBudget$$' -v ./view

performance: build-bench ## write docs/PERFORMANCE.md from docs/perf, with the bars of the results in bench-out
	@for f in peers/peers formats/formats ops/ops-cpu; do test ! -f bench-out/$$f.json || python3 -c 'import json, sys; r = json.load(sys.stdin); json.dump({"command": r["command"], "machine": r["machine"], \
	  "rows": [{k: x.get(k) for k in ("name", "title", "family", "repeats")} | {"bars": x.get("verdicts") or x["bars"]} for x in r["rows"]]}, sys.stdout, indent=1)' <bench-out/$$f.json >docs/perf/$$(basename $$f).json; done
	bin/robocache-bench report --performance docs/perf >docs/PERFORMANCE.md

clean: ## remove build outputs
	rm -rf bin dist .build/native .build/native-src* .build/wheels $(SO) demo-out
