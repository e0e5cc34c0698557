# Two commands do everything: `make demo` trains and compares all methods, `make test` checks the project.
# `make docs` builds the documentation as a site, to be opened at site/index.html.
# `make deploy-demo` trains on real processes: Flower's server and three devices, on this machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo deploy-demo docs test audit clean

demo: $(STAMP)
	$(BIN)/aquila compare --out runs/demo --overwrite

deploy-demo: $(STAMP)
	$(BIN)/python examples/flower/deploy.py

docs: $(STAMP)
	$(BIN)/mkdocs build --strict

test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/bandit --quiet --recursive --configfile pyproject.toml src
	$(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

# known vulnerabilities of what is installed; asks a service on the network
audit: $(STAMP)
	$(BIN)/pip install --quiet pip-audit
	$(BIN)/pip-audit --strict --skip-editable

$(STAMP): Makefile pyproject.toml constraints.txt $(shell find src/aquila/native -name '*.[ch]')
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,docs,report,flower,tensorboard,mlflow]'
	touch $@

clean:
	rm -rf $(VENV) runs site .pytest_cache .mypy_cache .ruff_cache .hypothesis
