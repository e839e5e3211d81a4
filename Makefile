# Two commands do everything: `make demo` and `make test`. Both make their own environment.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 2

.PHONY: demo test test-slow lint bench clean

demo: $(VENV)/.core  ## The CKL paper's main experiment at a small size: runs/demo/report.html
	$(BIN)/ckl demo $(ARGS)

test: $(VENV)/.dev  ## The fast tests, then the style
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

test-slow: $(VENV)/.seqio  ## All tests, the seqio bridge and the kill-and-resume test among them
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m 'slow or not slow' $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

bench: $(VENV)/.hf  ## Ratios against Hugging Face + PyTorch: benchmarks/results/*.json
	$(BIN)/python -m benchmarks.train_step $(ARGS)

# Compiling what is never imported takes a third of an installation.
export PIP_NO_COMPILE = 1

$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.core: $(VENV)/.made pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

$(VENV)/.seqio: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable '.[dev,seqio]'
	@touch $@

$(VENV)/.hf: $(VENV)/.core
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable '.[hf]'
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info
