.PHONY: quick check weekly lint types test docs exact wheel package figures \
	table1 table2 table3 table4 peers contest contest-test

PYTHON ?= python
# One thread each: two processes of small problems are quicker than one with two threads.
TEST = OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n 2 --dist worksteal

# -- the three tiers: while you work, before you push, once a week ---------------------------------

# under a minute: lint, types, the tests of what changed since the last commit, one fit
quick: lint types
	$(PYTHON) -c "import sklearn.datasets as d; from prcut import PRCut; print(PRCut(10).fit(d.load_digits().data))"
	OMP_NUM_THREADS=1 $(PYTHON) .ci/changed.py

# at most 15 minutes on two cores, on what .ci/run installed: what every change must pass
check: test lint types docs wheel exact

# about an hour: ratios of times, killed clusters, fuzzing, mutants, all benchmarks' quick versions
weekly:
	$(PYTHON) benchmarks/weekly.py

# -- their parts ----------------------------------------------------------------------------------

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types:
	$(PYTHON) -m mypy

test:
	$(TEST) -m "not weekly"

# warnings are errors (mkdocs.yml), unless --quiet hides them; generated pages are made again
docs:
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build

# benchmarks whose claim does not depend on the machine
exact:
	$(PYTHON) benchmarks/house.py
	$(PYTHON) benchmarks/exact_expectation.py --exact
	$(PYTHON) benchmarks/tables.py
	$(PYTHON) benchmarks/prose.py
	$(PYTHON) benchmarks/contest.py --summary
	$(PYTHON) benchmarks/contest.py --summary --half test

# the wheel in an environment of its own, used as a new user would
wheel: package
	bash .ci/wheel

# the paper's tables: runs what is missing of one, prints it; RUN="--methods prcut" adds options
table1 table2 table3 table4 peers:
	$(PYTHON) -m benchmarks.harness $@ $(RUN)

# the contest: the half by which rules may be changed, and the one that is run once per candidate
contest:
	$(PYTHON) benchmarks/contest.py --half development --run

contest-test:
	$(PYTHON) benchmarks/contest.py --half test --run

# the pictures and tables that are committed, from the committed results
figures:
	$(PYTHON) docs/making/figures.py

package:
	rm -rf dist
	$(PYTHON) -m build
	$(PYTHON) -m twine check --strict dist/*
