# make demo                trains with a dozen methods and compares them; `aquila compare --all`: with all
# make test                checks the project: style, types and tests
# make docs                builds the documentation; open site/index.html
# make deploy-demo         trains on real processes: Flower's server and three devices, on this machine
# make fuzz FRAMES=100000  decodes damaged frames with sanitizers in the C extensions
# make load                attacks a federation with 2,000 connections while it trains, three minutes
# make audit               lists known vulnerabilities of the installed packages; needs the network
# make clean               removes the virtual environment, the sanitized build, runs, the site and caches
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CC ?= cc
C_FILES := $(shell find src/aquila/native -name '*.[ch]')
FRAMES ?= 100000
SANITIZED := build/sanitized
SANITIZERS := -fsanitize=address,undefined -fno-sanitize-recover=undefined

.PHONY: demo deploy-demo docs test fuzz load audit clean

demo: $(STAMP)
	$(BIN)/aquila compare --out runs/demo --overwrite

deploy-demo: $(STAMP)
	$(BIN)/python examples/flower/deploy.py

docs: $(STAMP)
	$(BIN)/mkdocs build --strict

test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(C_FILES)
	$(BIN)/mypy
	$(BIN)/bandit --quiet --recursive --configfile pyproject.toml src
	$(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

# AddressSanitizer requires that libasan is loaded first, and libstdc++ at its start.
# Python itself leaks on purpose, so leak detection is off.
fuzz: $(STAMP)
	CFLAGS="-g $(SANITIZERS)" LDFLAGS="$(SANITIZERS)" \
		$(BIN)/python -c "from setuptools import setup; setup()" --quiet build --force --build-base $(SANITIZED) --build-lib $(SANITIZED)/lib
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=16 PYTHONPATH=$(SANITIZED)/lib \
		$(BIN)/python tests/hostile/fuzz.py --sanitized --frames $(FRAMES)

load: $(STAMP)
	$(BIN)/python tests/hostile/load.py --connections 2000

audit: $(STAMP)
	$(BIN)/pip install --quiet pip-audit
	$(BIN)/pip-audit --strict --skip-editable

$(STAMP): Makefile pyproject.toml constraints.txt $(C_FILES)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,docs,report,flower,metrics,tensorboard,mlflow,privacy]'
	touch $@

clean:
	rm -rf $(VENV) $(SANITIZED) runs site .pytest_cache .mypy_cache .ruff_cache .hypothesis
