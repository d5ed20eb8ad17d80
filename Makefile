# Everything sets itself up: the first target that needs Python packages makes a virtual environment in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready

.PHONY: demo test test-slow test-browser test-kill test-kill-everywhere test-ray versions lint types bench clean

demo: $(READY)  ## compare four teachers on Point Mass Sparse; ends in a table, pictures and a page
	$(BIN)/python examples/demo.py

test: $(READY)  ## the fast tests
	$(BIN)/python -m pytest -n auto -m "not slow and not browser and not kill and not ray"

test-slow: $(READY)  ## the learning runs as well
	$(BIN)/python -m pytest -n auto -m "not browser and not ray"

test-browser: $(READY)  ## the report's page in Chromium, which is fetched where none is found
	$(BIN)/python tools/chromium.py
	$(BIN)/python -m pytest -m browser tests/test_report.py

test-kill: $(READY)  ## runs and benchmarks killed at random moments
	$(BIN)/python -m pytest -n auto -m "kill and not slow"

test-kill-everywhere: $(READY)  ## every strategy on every setting, killed five times each; takes long
	$(BIN)/python -m pytest -n auto -m kill -rP tests/test_kill_everywhere.py

test-ray: $(VENV)/.ray  ## benchmarks on a Ray cluster of several nodes on this machine
	$(BIN)/python -m pytest -m ray

versions: $(READY)  ## the fast tests with the newest and with the lowest allowed versions of everything
	$(BIN)/python tools/versions.py

lint: $(READY)  ## formatting and style
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)  ## static types of the package
	$(BIN)/mypy

bench: $(READY)  ## speed against Stable-Baselines3, on one core
	$(BIN)/python benchmarks/speed.py

# Torch is installed first and pinned: left to itself, pip takes a build with gigabytes of CUDA.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $(READY)

$(VENV)/.ray: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[ray]"
	touch $(VENV)/.ray

clean:
	rm -rf $(VENV) build dist demo-output
