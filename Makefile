.PHONY: check lint types test docs figures package table1 table2 table3 table4 peers quality contest contest-test

PYTHON ?= python

check: lint types test

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types:
	$(PYTHON) -m mypy

# one thread each: two processes of small problems are quicker than one with two threads
test:
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -m "not slow" -n 2 --dist worksteal

# warnings are errors (mkdocs.yml), unless --quiet hides them; what is generated is made anew
docs:
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build

# the paper's tables: runs what is missing of one, prints it; RUN="--quick --plot" adds options
table1 table2 table3 table4 peers quality:
	$(PYTHON) -m benchmarks.harness $@ $(RUN)

# the contest: the half by which rules may be changed, and the one that is run once per candidate
contest:
	$(PYTHON) benchmarks/contest.py --half development --run

contest-test:
	$(PYTHON) benchmarks/contest.py --half test --run

# the pictures and tables that are committed, from the committed results
figures:
	$(PYTHON) -m benchmarks.harness peers --summary-only --mixed --plot >/dev/null
	$(PYTHON) docs/making/figures.py

package:
	rm -rf dist
	$(PYTHON) -m build
	$(PYTHON) -m twine check --strict dist/*
