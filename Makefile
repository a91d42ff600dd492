# Everything a fresh machine needs: python3 >= 3.11, a C compiler, make. `make help` lists the targets.

PYTHON ?= python3
VENV   ?= .venv
BUILD  := build
BIN    := $(VENV)/bin
STAMPS := $(VENV)/stamps
PIP    := $(BIN)/python -m pip -qq --disable-pip-version-check
ARGS   ?=

# The package is installed, not editable: what runs here is what a user gets. Any change of these files rebuilds it.
SOURCES := pyproject.toml meson.build meson.options \
  $(sort $(shell find colstore_io cython_kernels integrations -type f \
    \( -name '*.py' -o -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.h' -o -name 'meson.build' -o -name 'py.typed' \)))

export PIP_ROOT_USER_ACTION := ignore
export PIP_NO_INPUT := 1

# One pip at a time in one environment, also under `make -j`.
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo test test-peer lint types bench counts sanitize fuzz dev clean FORCE
.DEFAULT_GOAL := help

help:
	@echo "make demo       install, then convert and analyse a year of flights (examples/flights.py)"
	@echo "make test       ruff, mypy, instruction counts, all tests, and the suites of peer projects; ends with 'N passed, N failed'"
	@echo "make test-peer  only the suites of peer projects"
	@echo "make lint       ruff check and ruff format --check"
	@echo "make types      mypy --strict on the package"
	@echo "make bench      python benchmarks/run.py \$$(ARGS); names what fell by more than 10 %"
	@echo "make counts     instructions of the kernels against benchmarks/instructions.json; ARGS=--record"
	@echo "make sanitize   kernels under AddressSanitizer, UndefinedBehaviorSanitizer, ThreadSanitizer"
	@echo "make fuzz       damaged bytes for every decoder, on sanitized kernels; ARGS=\"--seconds 60 --target NAME\""
	@echo "make dev        editable install in $(VENV): kernels are rebuilt when they are imported"
	@echo "make clean      remove $(VENV), $(BUILD) and caches"

demo: $(STAMPS)/package $(STAMPS)/requirements-demo
	@$(BIN)/python examples/flights.py $(ARGS)

test: $(STAMPS)/package $(STAMPS)/requirements-test
	@$(BIN)/python tools/run_checks.py --build $(BUILD)

test-peer: $(STAMPS)/package $(STAMPS)/requirements-test
	@$(BIN)/python tools/run_checks.py --build $(BUILD) --only peer

lint: $(STAMPS)/requirements-test
	@$(BIN)/python tools/run_checks.py --build $(BUILD) --only lint

types: $(STAMPS)/requirements-test
	@$(BIN)/python tools/run_checks.py --build $(BUILD) --only types

bench: $(STAMPS)/package $(STAMPS)/requirements-bench
	@$(BIN)/python benchmarks/run.py $(ARGS)

counts: | $(STAMPS)/environment
	@$(BIN)/python tools/count_instructions.py $(ARGS)

sanitize: $(STAMPS)/requirements-sanitize
	@$(BIN)/python tools/sanitize.py --build $(BUILD) $(ARGS)

fuzz: $(STAMPS)/requirements-fuzz
	@$(BIN)/python tools/sanitize.py --build $(BUILD) --only fuzz $(ARGS)

# Without build isolation: the hook that rebuilds kernels on import needs the build tools where they were found.
dev: $(STAMPS)/requirements-test
	@$(BIN)/python tools/requirements.py --build-system > $(STAMPS)/requirements.txt
	@$(PIP) install -r $(STAMPS)/requirements.txt ninja
	@$(PIP) install --no-build-isolation --no-deps --editable .
	@rm -f $(STAMPS)/package
	@echo "editable: activate $(VENV), then run 'pytest'"

clean:
	rm -rf $(VENV) $(BUILD) .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMPS)/environment:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "colstore_io needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0])'
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS)
	@touch $@

# Rewritten only when the list differs, so that a deleted source file rebuilds too.
$(STAMPS)/sources: FORCE | $(STAMPS)/environment
	@printf '%s\n' $(SOURCES) > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

$(STAMPS)/package: $(SOURCES) $(STAMPS)/sources | $(STAMPS)/environment
	@echo "building colstore_io ..."
	@$(PIP) install --force-reinstall --no-deps .
	@$(BIN)/python tools/requirements.py > $(STAMPS)/requirements.txt
	@$(PIP) install -r $(STAMPS)/requirements.txt
	@touch $@

$(STAMPS)/requirements-demo: pyproject.toml | $(STAMPS)/environment
	@$(BIN)/python tools/requirements.py demo > $(STAMPS)/requirements.txt
	@$(PIP) install -r $(STAMPS)/requirements.txt
	@touch $@

$(STAMPS)/requirements-test: pyproject.toml | $(STAMPS)/environment
	@echo "installing what the tests need ..."
	@$(BIN)/python tools/requirements.py test lint > $(STAMPS)/requirements.txt
	@$(PIP) install -r $(STAMPS)/requirements.txt
	@touch $@

$(STAMPS)/requirements-sanitize: pyproject.toml | $(STAMPS)/environment
	@$(BIN)/python tools/requirements.py sanitize > $(STAMPS)/requirements.txt
	@$(PIP) install -r $(STAMPS)/requirements.txt
	@touch $@

$(STAMPS)/requirements-fuzz: pyproject.toml | $(STAMPS)/environment
	@$(BIN)/python tools/requirements.py sanitize fuzz > $(STAMPS)/requirements.txt
	@$(PIP) install -r $(STAMPS)/requirements.txt
	@touch $@

$(STAMPS)/requirements-bench: pyproject.toml | $(STAMPS)/environment
	@$(BIN)/python tools/requirements.py bench > $(STAMPS)/requirements.txt
	@$(PIP) install -r $(STAMPS)/requirements.txt
	@touch $@
