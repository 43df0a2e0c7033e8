# The two commands: make demo, make test. Everything that they need they install or build themselves.
SHELL := /bin/bash
GO ?= go
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
# PyAV and torchcodec bring their own FFmpeg into the same process: ours must not be seen. Only robocache_* is exported.
SO_LDFLAGS := $(LDFLAGS) -extldflags "-Wl,--exclude-libs,ALL -Wl,--version-script=$(CURDIR)/cmd/librobocache/exports.map"
SO := python/robocache/_lib/librobocache.so
export ROBOCACHE_TESTDATA ?= $(abspath ../shared/data)
PY := .venv/bin/python

.PHONY: help deps browser qemu view-bench native build build-bench static lib docs wheels test-wheels test-arm64 test-containers release core peers prepare demo lib-demo servers minio test test-all test-stores test-fast test-data test-go test-race test-race-all test-python cover test-tfds test-zarr lint fuzz engines test-ray test-slurm test-engines soak bench performance clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

deps: ## install the system packages that are missing
	@scripts/deps.sh

browser: ## install the browser that tests of `robocache view` drive; without it they skip
	@scripts/deps.sh browser || echo "browser: none was installed: the tests of the page skip"

qemu: ## install the emulator by which the kernels are tested on arm64; without it that test skips
	@scripts/deps.sh qemu || echo "qemu: none was installed: the test of kernels on arm64 skips"

native: deps ## build the static decode libraries (once)
	@scripts/native.sh || { pkg-config --exists libavcodec libswscale && echo "native: the system's FFmpeg is linked instead"; }

# Not -trimpath: what the tests, lint and this program are made of is compiled once.
build: native ## bin/robocache and the C library of the Python package
	@mkdir -p bin
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/robocache ./cmd/robocache
	@$(MAKE) --no-print-directory lib

# A module of its own: go's commands in the root do not see it.
build-bench: native ## bin/robocache-bench
	@mkdir -p bin
	$(GO) build -C bench -ldflags '$(LDFLAGS)' -o ../bin/robocache-bench ./cmd/robocache-bench

static: native ## bin/robocache-static: one file with every reader and decoder, for images without anything else
	$(GO) build -trimpath -tags netgo,osusergo -ldflags "$(LDFLAGS) -linkmode external -extldflags -static" -o bin/robocache-static ./cmd/robocache

lib: native
	$(GO) build -trimpath -buildmode=c-shared -ldflags '$(SO_LDFLAGS)' -o $(SO) ./cmd/librobocache
	@rm -f $(SO:.so=.h)
	@cp video/jpegxl/data/COPYING.* python/robocache/_lib/; cp .build/native/COPYING.* python/robocache/_lib/ 2>/dev/null || true

wheels: ## dist/*.whl of x86-64 and arm64, for any Linux since 2012: built by zig, a quarter of an hour on two idle cores, minutes where the decoders are built
	@scripts/wheels.sh

docs: ## dist/site: the pages of docs, the Python package and the Go packages as one site that asks no other host for anything
	@scripts/venv.sh docs
	NO_MKDOCS_2_WARNING=1 .build/docs/bin/python -m mkdocs build --strict

test-wheels: wheels ## the wheels in Debian 11, 13, testing and arm64 (qemu), on bad machines, and uninstalled
	@scripts/tests/wheels.sh

test-arm64: ## Go tests of what promises bits, and of the decoders, on arm64 by qemu: once a release, 13 minutes on two cores
	@scripts/tests/arm64.sh

test-containers: ## the images of the Dockerfile by buildah, without Docker or a registry (as root): built, run and measured
	@scripts/tests/containers.sh

release: ## dist/release-VERSION: wheels, static binaries, man pages, SBOMs, checksums, notes, and the tag (make release VERSION=1.2.3 ARGS=--dry-run)
	@VERSION='$(VERSION)' scripts/release.sh $(ARGS)

core: ## .venv with torch, for the demo
	@scripts/venv.sh core

peers: ## .venv with lerobot and its decoders too: reference reader and peer of the tests, Go and Python
	@scripts/venv.sh peers

demo: ## the main job, shown: synth, inspect, doctor, load, train, contact sheet (into demo-out/)
	@scripts/demo.sh

# The Python library as quickly as possible: it links the system's FFmpeg unless .build/native is built.
# The extra macro keeps objects of the two FFmpegs apart in Go's build cache.
lib-demo:
	@if [ -f .build/native/video.built ]; then $(MAKE) --no-print-directory lib; else scripts/deps.sh demo && \
	  CGO_CFLAGS="-O2 -g -DROBOCACHE_SYSTEM_FFMPEG" $(GO) build -trimpath -buildmode=c-shared -ldflags '$(SO_LDFLAGS)' -o $(SO) ./cmd/librobocache; fi

test: prepare browser qemu lint test-go test-race test-python ## all tests, the race detector on the core

test-all: servers engines test test-engines test-race-all ## also the longer runs of the race detector, and the object stores on real servers

# Two minutes on two cores, so `make test` alone skips what wants them; CI builds them. moto's S3 server is one of the peers.
SERVERS := .build/servers/versitygw .build/servers/fake-gcs-server
servers: $(SERVERS) ## versitygw (S3) and fake-gcs-server, for the tests of object stores
minio: .build/servers/minio ## MinIO too: four minutes of CPU and more, so no other target builds it
.build/servers/versitygw:
	GOBIN=$(abspath .build/servers) GOFLAGS=-mod=mod $(GO) install github.com/versity/versitygw/cmd/versitygw@v1.8.0
.build/servers/fake-gcs-server:
	GOBIN=$(abspath .build/servers) GOFLAGS=-mod=mod $(GO) install github.com/fsouza/fake-gcs-server@v1.56.1
.build/servers/minio:
	GOBIN=$(abspath .build/servers) GOFLAGS=-mod=mod $(GO) install github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c

test-stores: servers ## object stores on real servers
	$(GO) test ./store/... ./format/delta
	$(GO) test -run ObjectStore ./internal/e2e ./shard

# The compiler and the package installer hardly wait for the same thing.
prepare:
	@$(MAKE) --no-print-directory -j2 --output-sync=target build peers $(ALSO)
	@scripts/venv.sh docs || echo "docs: mkdocs could not be installed: the tests of the site skip"

# ELSEWHERE: packages that another run tests already. Without the checks of go vet: lint makes all of them.
ELSEWHERE ?= ^$$
test-go: native
	@all=$$($(GO) list ./...) && set -x && $(GO) test -vet=off -timeout 20m $$(echo "$$all" | grep -vE '$(ELSEWHERE)')
	$(GO) test -C bench -vet=off -timeout 20m ./...

# Frames, caches and stores share memory most; orders are computed by one goroutine, and the loader's tests ask for them from many.
test-race: native
	$(GO) test -vet=off -race -short -timeout 20m ./store/... ./cache/... ./loader ./loader/internal/buffers ./loader/internal/frames

# Not the parsers below the formats: their files are read by one goroutine, or by the formats' own suites.
test-race-all: native
	$(GO) test -vet=off -race -short -timeout 20m ./video/... $$($(GO) list ./format/... | grep -vE '/internal/(h5|pq|npy|zipdir|blosc)$$')

cover: native ## coverage of a lone clone, and with the shared data
	@scripts/tests/cover.sh

# RLDS against tensorflow-datasets, which is 1.8 GB: a job of its own.
test-tfds: native ## RLDS read and written beside tensorflow-datasets (in .venv-tfds)
	@scripts/tests/venv-tfds.sh
	$(GO) test -count=1 -timeout 20m ./format/rlds

# Zarr as the readers of diffusion_policy's pins open it, which no current Python has.
test-zarr: native ## Zarr written, opened by zarr 2.12.0 and numcodecs 0.10.2 (in .venv-zarr)
	@scripts/tests/venv-zarr.sh
	$(GO) test -count=1 ./format/zarr

# Integration tests, and sweeps over all kernels, are left out; -short thins the rest.
SLOW_PACKAGES := /(shard|submit|view|kernel/cuda|kernel/conform|internal/e2e|internal/cli)(/|$$)
test-fast: build ## unit tests of Go and Python without peers: two minutes once built
	$(GO) test -vet=off -short -timeout 10m $$($(GO) list ./... | grep -vE '$(SLOW_PACKAGES)')
	$(GO) test -C bench -vet=off -short -timeout 10m ./gpu ./report ./runners
	PYTHONPATH=python $(PY) -m pytest -q --fast python/tests

# LISTS: the folder with the lists `go` and `python` that a run without the data wrote (see .ci/run).
test-data: lib
	@scripts/tests/with-data.sh $(LISTS)/go $(LISTS)/python

test-python: lib
	PYTHONPATH=python $(PY) -m pytest -q -rs python/tests

# golines and lint-changes look at what changed since CI_BASE only (see scripts/lint-changes.py).
TOOL := $(GO) tool -modfile=$(CURDIR)/tools/go.mod
lint: ## gofumpt, golines, ruff, go vet, staticcheck, plain English, a build without cgo; a test checks the import rules
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
fuzz: ## each parser for a minute (FUZZTIME=10m: longer; ONLY='h5|rlds': some; JOBS=2 at a time)
	@GO="$(GO)" FUZZTIME="$(FUZZTIME)" scripts/tests/fuzz.sh

engines: ## Slurm, Prometheus and Ray, for the tests that run shards on them
	@scripts/engines.sh

test-ray: lib ## shards and Ray Data on a Ray cluster of two nodes (in .build/ray)
	@scripts/engines.sh ray
	@.build/ray/bin/python -c 'import ray.data' 2>/dev/null || { echo "test-ray: skipped, no Ray in .build/ray"; exit 0; }; \
	run() { PYTHONPATH=python timeout -k 10 $(RAYTIME) .build/ray/bin/python -m pytest -q -rs --show-capture=no "$$@" python/tests/test_ray.py; }; \
	run; code=$$?; [ $$code != 1 ] || { echo "test-ray: Ray's limits are by the clock: what failed runs once more, alone"; run --lf; code=$$?; }; \
	case $$code in 0) ;; 124 | 137) echo "test-ray: skipped, Ray came to no end in $(RAYTIME) s: too slow a machine" ;; *) exit $$code ;; esac

RAYTIME ?= 420
# -count=1: the tests run the program and the library, of which Go's cache of results knows nothing.
test-slurm: servers ## shards on a real Slurm of two nodes, the dashboard's queries on a real Prometheus, the ten commands of docs/cluster.md
	@scripts/engines.sh slurm
	$(GO) test -count=1 -timeout 15m ./submit ./metrics

test-engines: test-ray test-slurm ## shards on real engines: Slurm, Ray, two nodes by three launchers, Prometheus

soak: build build-bench ## pools, caches, http, kills and resumes for 30 minutes (SOAK=2m: shorter): every image checked, memory flat
	@scripts/soak.sh

REPEATS ?= 5
REAL ?= $(or $(ROBOCACHE_TESTDATA),../shared/data)/g1_v30_exact
bench: build build-bench peers ## the figures of docs/PERFORMANCE.md, into bench-out: an hour and a half on two quiet cores (REPEATS=3: an hour)
	bin/robocache-bench peers $(REAL) --all --repeats $(REPEATS) --out bench-out/peers || test $$? = 3
	bin/robocache-bench formats --all --repeats $(REPEATS) --out bench-out/formats || test $$? = 3
	for set in $(REAL) bench-out/sets/*/h264-g30 bench-out/sets/*/h264-g250; do \
	  bin/robocache-bench decode $$set --runners robocache,ffmpeg,torchcodec,pyav --repeats $(REPEATS) --out bench-out/decode-sequential-$$(basename $$set); \
	  bin/robocache-bench decode $$set --runners robocache,torchcodec,pyav --pattern random --count 300 --repeats $(REPEATS) --out bench-out/decode-random-$$(basename $$set); done
	bin/robocache-bench ops --sweep --rounds $(REPEATS) --out bench-out/ops || test $$? = 3
	bin/robocache-bench load $(REAL) --scenarios all --runners engine,robocache --repeats $(REPEATS) --duration 20s --explain --out bench-out/scenarios

view-bench: build browser ## what a person waits for in the page of `robocache view`: the table of docs/dev/measurements.md
	ROBOCACHE_VIEW_BENCH=$(CURDIR)/bin/robocache $(GO) test -count=1 -timeout 20m -run '^TestBudget$$' -v ./view

performance: build-bench ## docs/PERFORMANCE.md of docs/perf, with the bars of what bench-out has
	@for f in peers/peers formats/formats ops/ops-cpu; do test ! -f bench-out/$$f.json || python3 -c 'import json, sys; r = json.load(sys.stdin); json.dump({"command": r["command"], "machine": r["machine"], \
	  "rows": [{k: x.get(k) for k in ("name", "title", "family", "repeats")} | {"bars": x.get("verdicts") or x["bars"]} for x in r["rows"]]}, sys.stdout, indent=1)' <bench-out/$$f.json >docs/perf/$$(basename $$f).json; done
	bin/robocache-bench report --performance docs/perf >docs/PERFORMANCE.md

clean: ## remove what was built
	rm -rf bin dist .build/native .build/native-src* .build/wheels $(SO) demo-out
