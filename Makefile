# make setup   .venv with everything Python needs, test and lint tools included (Python 3.11+, no root)
# make run     the service on a simulated rack, with a demonstration; Ctrl-C ends it
# make test    lint, strict types, import rules, and every test (root on Debian also installs the system packages)
# make image   the test image, PROFILE=cpu or gpu (root on Debian; docs/test-image.md); SOURCES, OVERLAY and OUTPUT are yours
# make torture kill -9, freezes, races, N=200 of each (40 minutes)   make bench   the figures of the design, as ratios
# make lint    the part of `make test` that runs nothing    make lock   pin the newest allowed dependencies

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
BIN := .venv/bin
WORKERS ?= 2
N ?= 200
PROFILE ?= cpu

.PHONY: help setup system run lint test image torture bench lock
help:
	@sed -n 's/^# //p' Makefile

setup:
	@tools/setup

system:
	@tools/system-packages

run: setup
	@$(BIN)/fleet up --lab 6 --demo

lint: setup
	@echo '== format';  $(BIN)/ruff format --check .
	@echo '== lint';    $(BIN)/ruff check .
	@echo '== types';   $(BIN)/mypy
	@echo '== imports'; $(BIN)/lint-imports

test: system lint
	@echo '== tests';   $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

image: setup
	@$(BIN)/python -m image $(PROFILE) $(if $(SOURCES),--sources $(SOURCES)) $(if $(OVERLAY),--overlay $(OVERLAY)) \
	  $(if $(OUTPUT),--output $(OUTPUT))

torture: system setup
	@echo '== engine: $(N) kills and $(N) freezes on PostgreSQL; then without the guard, which must be harm'
	@$(BIN)/python -m tests.torture --database postgresql --seconds 0 --kills $(N) --freezes $(N)
	@$(BIN)/python -m tests.torture --database postgresql --seconds 0 --kills 0 --freezes $(N) --no-guard
	@echo '== scheduler'
	@$(BIN)/python -m tests.integration.scheduler
	@echo '== simulated rack: the same; then without guard and fence, which must be harm; in bad weather; on SQLite'
	@$(BIN)/python -m tests.torture.rack --database postgresql --kills $(N) --freezes $(N)
	@$(BIN)/python -m tests.torture.rack --database postgresql --kills 0 --freezes $(N) --reckless
	@$(BIN)/python -m tests.torture.rack --database postgresql --kills $$(($(N) / 2)) --weather
	@$(BIN)/python -m tests.torture.rack --database sqlite --kills $$(($(N) / 2))

bench: setup
	@$(BIN)/python -m tests.bench

lock: setup
	@$(BIN)/python -m uv --version >/dev/null 2>&1 || $(BIN)/python -m pip install --quiet uv
	@compile() { $(BIN)/python -m uv pip compile "$$@" --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-header --no-annotate --quiet; }; \
	compile requirements/dev.in --output-file requirements.lock; \
	for part in runtime build; do \
	  compile requirements/$$part.in --constraint requirements.lock --output-file requirements/$$part.lock; \
	done
