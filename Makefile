# Every target sets up what it needs: python3 (3.11 or newer) with venv, and make, are enough on a new machine.

VENV := .venv
PY := $(VENV)/bin/python
ARGS :=

.DEFAULT_GOAL := help
.PHONY: help demo test check bench venv peers clean

help:
	@echo 'make demo    a legacy host, the proxy and the inspector, on this machine   (ARGS="--once question")'
	@echo 'make test    the tests, with the browser, nginx and node where they can be had   (ARGS="-k name")'
	@echo 'make check   ruff and mypy'
	@echo 'make bench   the measurements of bench/'
	@echo 'make clean   remove what these made'

demo: venv
	@$(PY) -m sse_proxy demo $(ARGS)

test: venv peers
	@PATH="$$PATH:/usr/sbin" $(PY) -m pytest $(ARGS)

check: venv
	$(PY) -m ruff check .
	$(PY) -m mypy

bench: venv
	@set -e; for file in bench/*.py; do echo "== $$file"; $(PY) "$$file" $(ARGS); done

venv:
	@sh scripts/setup-venv.sh $(VENV)

peers:
	@sh scripts/setup-peers.sh

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis tests/js/node_modules
