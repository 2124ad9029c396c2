# make demo, make test, make lint, make docs, make bench, make backends. Everything runs in .venv,
# which is made on first use and left alone until pyproject.toml or constraints.txt change.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
JOBS   ?= 2
PYTEST_ARGS ?=

INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
DEMO_READY := $(VENV)/.ready-demo
TEST_READY := $(VENV)/.ready-test
BENCH_READY := $(VENV)/.ready-bench

.PHONY: demo test lint docs bench backends clean
.DEFAULT_GOAL := demo

demo: $(DEMO_READY)
	$(BIN)/costlens demo

# Timed comparisons run apart and alone: a neighbour on the second core would be measured, too.
# They come first, so that the last line counts the suite; exit code 5 says nothing was selected.
# One torch thread a worker: two workers with two each would wait for one another on two cores.
test: lint
	@$(MAKE) --no-print-directory backends || echo "tests that need the back-ends will be skipped"
	$(BIN)/pytest -m timing $(PYTEST_ARGS) || test $$? -eq 5
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(JOBS) -m "not timing" $(PYTEST_ARGS)

lint: $(TEST_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(if $(wildcard tests/typing/*.py),$(BIN)/mypy $(wildcard tests/typing/*.py))
	$(BIN)/lint-imports
	$(BIN)/python -m grafana.build --check

# The back-ends that tests run on loopback: VictoriaMetrics, Prometheus, Alertmanager; no root.
backends:
	tests/backends/install.sh

docs: $(TEST_READY)
	$(BIN)/python docs/generate.py
	$(BIN)/python -m grafana.build

# BENCH_ARGS=--write-readme puts the tables into README.md. Run it on a machine that does nothing else.
bench: $(BENCH_READY)
	$(BIN)/python benchmarks/hot_path.py
	$(BIN)/python -m benchmarks.merge_records
	$(BIN)/python -m benchmarks.html_report
	$(BIN)/python -m benchmarks.host_sampling
	$(BIN)/python -m benchmarks.overhead $(BENCH_ARGS)
	$(BIN)/python -m benchmarks.planted_truth $(BENCH_ARGS)
	$(BIN)/python -m benchmarks.interval $(BENCH_ARGS)
	$(BIN)/python -m benchmarks.checkpoint $(BENCH_ARGS)
	$(BIN)/python -m benchmarks.device_sampling
	$(BIN)/python -m benchmarks.diagnosis $(BENCH_ARGS)
	$(BIN)/python -m benchmarks.diagnosis.speed

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(DEMO_READY): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable '.[lightning]'
	@touch $@

$(TEST_READY): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable '.[lightning,test]'
	@touch $@ $(DEMO_READY)

$(BENCH_READY): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable '.[lightning,test,bench]'
	@touch $@ $(TEST_READY) $(DEMO_READY)
