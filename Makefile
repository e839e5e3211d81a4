# Two commands do everything: `make demo` and `make test`. Both make their own environment.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 2

.PHONY: demo test test-slow lint docs notebooks bench clean

demo: $(VENV)/.core  ## The CKL paper's main experiment at a small size: runs/demo/report.html
	$(BIN)/ckl demo $(ARGS)

test: $(VENV)/.dev  ## The fast tests, then the style
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

test-slow: $(VENV)/.seqio  ## All tests, the seqio bridge and the kill-and-resume test among them
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m 'slow or not slow' $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

docs: $(VENV)/.docs  ## The documentation as a site, build/docs/site/index.html; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/python docs/make_site.py

# `WITH='jax==0.10.0'` adds packages to the environment. `build/lib` would go into the wheel.
notebooks: WHEEL := $(CURDIR)/build/wheel
notebooks:  ## The notebooks, from a wheel in an environment of its own: build/notebooks, for `make docs`
	rm -rf build/lib $(WHEEL) && $(PYTHON) -m venv $(WHEEL)/venv
	$(WHEEL)/venv/bin/pip wheel --quiet --no-deps --wheel-dir $(WHEEL) .
	$(WHEEL)/venv/bin/pip install --quiet $(WITH) $$(echo $(WHEEL)/*.whl)[notebooks]
	cd $$(mktemp -d) && env -u PYTHONPATH $(WHEEL)/venv/bin/python $(CURDIR)/benchmarks/notebooks.py \
		$(CURDIR)/notebooks/*.ipynb --package $(WHEEL)/*.whl --out $(CURDIR)/build/notebooks

bench: $(VENV)/.hf  ## Ratios against Hugging Face + PyTorch: benchmarks/results/*.json
	$(BIN)/python -m benchmarks.train_step $(ARGS)

# Compiling what is never imported takes half of an installation; in pip's variables 0 is what sets
# a `--no-` option. What is imported is compiled once, by the first process that needs it.
export PIP_NO_COMPILE = 0
export PYTHONDONTWRITEBYTECODE =

$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	@touch $@

# A line that says what is being installed; what pip complains of stays, and its exit code counts.
install = @echo "Installing $(1) into $(VENV): one to three minutes"; \
	{ $(BIN)/python -m pip install --progress-bar off $(1); echo $$? > $(VENV)/.status; } | \
	awk '/^(Collecting|Installing)/ {printf "\r%-78.78s", $$1 " " $$2; fflush()} END {print ""}'; \
	exit $$(cat $(VENV)/.status)

$(VENV)/.core: $(VENV)/.made pyproject.toml
	$(call install,--editable .)
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml
	$(call install,--editable '.[dev]')
	@touch $@

$(VENV)/.seqio: $(VENV)/.dev
	$(call install,--editable '.[dev$(comma)seqio]')
	@touch $@

$(VENV)/.docs: $(VENV)/.made pyproject.toml
	$(call install,--editable '.[docs]')
	@touch $@

$(VENV)/.hf: $(VENV)/.core
	$(call install,torch==2.13.0)
	$(call install,--editable '.[hf]')
	@touch $@

comma := ,

clean:
	rm -rf $(VENV) build *.egg-info
