# The same commands for people and for CI.  `make help` lists them.
PYTHON ?= python3
VENV := build/venv/bin
export CARGO_TARGET_DIR := $(CURDIR)/build/cargo

.PHONY: help setup sdks test lint demo bench fuzz proof crash clean

help: ## list the targets
	@grep -E '^[a-z]+:.*## ' Makefile | sed 's/:.*## /\t/' | expand -t 10

setup: ## make build/venv, build the wheel and install it there
	@$(PYTHON) tools/bootstrap.py

sdks: ## also make the environments of the published clients (two of Python SDKs, Node, example servers)
	@$(PYTHON) tools/bootstrap.py --env sdk1 --env sdk2 --env node --sources

demo: setup ## run the main job
	@$(VENV)/python tools/tiers.py demo

test: sdks ## pass every test: lint, Rust, Python, demo
	@$(VENV)/python tools/tiers.py test

proof: sdks ## the same tests at their full counts
	@COUNTERFOIL_FULL=1 $(VENV)/python tools/tiers.py test

crash: setup ## kill a process that applies effects, N times (N=2000)
	@COUNTERFOIL_KILLS=$(or $(N),2000) $(VENV)/pytest -q tests/effects/test_kill.py

lint: setup ## rustfmt, clippy, ruff, mypy --strict, stubtest
	@$(VENV)/python tools/tiers.py lint

bench: setup ## measure every bar (FLOORS=DIR: also against the C floors in DIR)
	@$(PYTHON) tools/bootstrap.py --env bench --env node
	@build/bench/bin/python benches/run.py $(if $(FLOORS),--floors $(FLOORS))

fuzz: setup ## run each fuzz target for a bounded time (SECONDS_EACH=60)
	@$(VENV)/python tools/fuzz.py --seconds $(or $(SECONDS_EACH),60)

clean: ## remove everything that was built
	rm -rf build rust/fuzz/target
