# Everything sets itself up: the first target that needs Python packages makes a virtual environment in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready
unexport PYTHONDONTWRITEBYTECODE # the tests start some hundred processes, which would all compile the same sources

.PHONY: demo test test-exact test-other test-slow test-browser test-kill test-kill-everywhere test-ray test-rllib test-suites test-trl test-gpu-programs versions notebooks stranger lint types bench soak docs dist pythons clean

demo: $(READY)  ## compare four teachers in the maze; ends in a table, pictures, a page and a plain word
	$(BIN)/python examples/demo.py

# Compiling is most of the tests' time. Whatever asserts no bits is compiled with few passes; and all programs in one
# piece, since the cores have other tests to run.
FAST = not slow and not browser and not kill and not ray
ONE_PIECE = --xla_cpu_parallel_codegen_split_count=1
FEW_PASSES = --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true \
	--xla_cpu_use_fusion_emitters=false $(ONE_PIECE)

test: $(READY)  ## the fast tests
	$(MAKE) --no-print-directory -j2 test-exact test-other

test-exact: $(READY)
	XLA_FLAGS="$(ONE_PIECE)" $(BIN)/python -m pytest -q -m "exact and $(FAST)" $$(grep -l "mark.exact" tests/test_*.py)

test-other: $(READY)
	XLA_FLAGS="$(FEW_PASSES)" $(BIN)/python -m pytest -q -n auto --dist loadfile -m "not exact and $(FAST)"

test-slow: $(READY)  ## the learning runs as well
	$(BIN)/python -m pytest -n auto -m "not browser and not ray"
	$(MAKE) --no-print-directory test-suites
	$(MAKE) --no-print-directory test-trl
	$(MAKE) --no-print-directory test-gpu-programs

test-browser: $(READY)  ## the report's page and the documentation in Chromium, which is fetched where none is found
	$(BIN)/python tools/chromium.py
	$(BIN)/python -m pytest -m browser tests/test_report.py tests/test_docs.py tests/test_readme.py

test-kill: $(READY)  ## whole runs and benchmarks as processes, most of them killed at random moments
	$(BIN)/python -m pytest -n auto --dist loadfile --durations=10 -m "kill and not slow"

test-kill-everywhere: $(READY)  ## every strategy on every setting, killed five times each; takes long
	$(BIN)/python -m pytest -n auto -m kill -rP tests/test_kill_everywhere.py

test-ray: $(VENV)/.ray  ## benchmarks on a Ray cluster of several nodes on this machine
	$(BIN)/python -m pytest -m ray

versions: $(READY)  ## the fast tests with the newest and with the lowest allowed versions of everything
	$(BIN)/python tools/versions.py

test-rllib: .venv-rllib/.ready  ## the recipe for RLlib, which wants another Gymnasium and so another environment
	.venv-rllib/bin/python -m pytest -m ray tests/test_recipes.py

test-suites: .venv-suites/.ready  ## gymnax, brax and MuJoCo Playground, in an environment of their own: they bring many packages
	.venv-suites/bin/python -m pytest -q tests/test_suites.py

test-trl: .venv-trl/.ready  ## curricula over prompts with TRL, in an environment of its own: it brings many packages
	.venv-trl/bin/python -m pytest -q tests/test_trl.py

test-gpu-programs: .venv-gpu/.ready  ## all programs compile for a GPU, without one: JAX's CUDA plugin in an environment of its own
	.venv-gpu/bin/python -m pytest -q tests/test_gpu_programs.py

notebooks: $(READY)  ## run the notebooks and store them with their outputs
	$(BIN)/python tools/notebooks.py

stranger: ## a new user's path from a clean clone, by the documentation alone, with the time of each part
	bash tools/stranger.sh

lint: $(READY)  ## formatting and style
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tools/check_loading.py

types: $(READY)  ## static types of the package
	$(BIN)/mypy

bench: $(READY)  ## speed: per core and on all, against Stable-Baselines3, the released way to teach and the arithmetic floor
	$(BIN)/python benchmarks/speed.py

soak: $(READY)  ## two hours of training, cutting and resuming in one process, with its memory drawn
	$(BIN)/python benchmarks/soak.py

dist: $(READY)  ## the wheel and the sdist in dist/, checked, and tried out in an empty environment
	$(BIN)/python tools/dist.py
	$(BIN)/python -m pytest tests/test_dist.py

pythons: $(READY)  ## the wheel, with a part of the tests, in every declared Python that is found
	$(BIN)/python tools/pythons.py

docs: $(READY)  ## the documentation site, in build/site; needs no network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

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

.venv-rllib/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-rllib
	grep -v '^gymnasium==' constraints.txt > .venv-rllib/constraints.txt
	.venv-rllib/bin/python -m pip install --quiet --constraint .venv-rllib/constraints.txt torch
	.venv-rllib/bin/python -m pip install --quiet --constraint .venv-rllib/constraints.txt --editable ".[rllib]" pytest
	touch .venv-rllib/.ready

.venv-suites/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-suites
	grep -v '^gymnasium==' constraints.txt > .venv-suites/constraints.txt
	.venv-suites/bin/python -m pip install --quiet --constraint .venv-suites/constraints.txt --editable ".[gymnax,brax,report]" playground pytest
	touch .venv-suites/.ready

.venv-trl/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-trl
	.venv-trl/bin/python -m pip install --quiet --constraint constraints.txt torch
	.venv-trl/bin/python -m pip install --quiet --constraint constraints.txt --editable ".[trl]" pytest
	touch .venv-trl/.ready

.venv-gpu/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-gpu
	.venv-gpu/bin/python -m pip install --quiet --constraint constraints.txt --editable . jax-cuda12-plugin jax-cuda12-pjrt pytest
	touch .venv-gpu/.ready

clean:
	rm -rf $(VENV) .venv-rllib .venv-suites .venv-trl .venv-gpu build dist demo-output soak-output
