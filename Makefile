# Every target makes what it needs: tools in .venv, everything else under build/.
# ARGS is handed to the target's program: make test ARGS="-k queue".

PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
BIN := .venv/bin
INSTALLED := .venv/.installed
CHECKS := 'ruff check' 'ruff format --check' mypy basedpyright 'lint-imports --cache-dir build/import-linter'

.PHONY: help demo test check golden bench pykka-suite clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## run the demo
	@$(BIN)/python docs/examples/demo/run.py $(ARGS)

test: $(INSTALLED) ## run all tests; fails below 100 % branch coverage of admission, 90 % of actors
	@mkdir -p build
	$(BIN)/pytest --cov --cov-report= $(ARGS)
	$(BIN)/coverage report --include='admission/*' --fail-under=100
	$(BIN)/coverage report --include='actors/*' --fail-under=90

check: $(INSTALLED) ## lint, formatting, types, import contracts; all of them, quiet when good
	@mkdir -p build; \
	failed=0; \
	for check in $(CHECKS); do \
	    $(BIN)/$$check >build/check.log 2>&1 || { failed=1; echo "--- $$check"; cat build/check.log; }; \
	done; \
	exit $$failed

golden: $(INSTALLED) ## replay the recorded scenarios, or those in DIR=folder; fails if one differs
	@$(BIN)/python -m tests.conformance.golden.replay $(DIR) $(ARGS)

bench: $(INSTALLED) ## run the benchmarks
	@$(BIN)/python tests/bench/run.py $(ARGS)

pykka-suite: $(INSTALLED) ## run Pykka's own tests on our actors
	@$(BIN)/python tests/tools/pykka_suite.py $(ARGS)

clean: ## remove everything that was made
	rm -rf .venv build .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1' # the first with --group
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@
