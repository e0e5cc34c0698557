# Two commands do everything: `make demo` trains and compares all methods, `make test` checks the project.
# `make docs` builds the documentation as a site, to be opened at site/index.html.
# `make fuzz FRAMES=100000` decodes damaged frames with C extensions that have sanitizers built in.
# `make deploy-demo` trains on real processes: Flower's server and three devices, on this machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CC ?= cc
C_FILES := $(shell find src/aquila/native -name '*.[ch]')
FRAMES ?= 100000
SANITIZED := build/sanitized
SANITIZERS := -fsanitize=address,undefined -fno-sanitize-recover=undefined

.PHONY: demo deploy-demo docs test fuzz audit clean

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

# libasan must be the first library of the process, and libstdc++ must be there when it starts.
# Python itself leaks on purpose, so leaks are not looked for.
fuzz: $(STAMP)
	CFLAGS="-g $(SANITIZERS)" LDFLAGS="$(SANITIZERS)" \
		$(BIN)/python -c "from setuptools import setup; setup()" --quiet build --force --build-base $(SANITIZED) --build-lib $(SANITIZED)/lib
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=16 PYTHONPATH=$(SANITIZED)/lib \
		$(BIN)/python tests/hostile/fuzz.py --sanitized --frames $(FRAMES)

# known vulnerabilities of what is installed; asks a service on the network
audit: $(STAMP)
	$(BIN)/pip install --quiet pip-audit
	$(BIN)/pip-audit --strict --skip-editable

$(STAMP): Makefile pyproject.toml constraints.txt $(C_FILES)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,docs,report,flower,tensorboard,mlflow]'
	touch $@

clean:
	rm -rf $(VENV) runs site .pytest_cache .mypy_cache .ruff_cache .hypothesis
