# make demo: the whole way on a real site.   make check: lint, types and the quick tests.   make test: all tests.
.PHONY: setup peers demo test check suite lint bench bench-quick lock docs api clean

PYTHON_BIN = .venv/bin
# Each of the many processes would compile all modules anew where this is set.
export PYTHONDONTWRITEBYTECODE =

setup:
	@./setup.sh

peers:
	@./setup.sh --peers

demo: setup
	@$(PYTHON_BIN)/stillweb demo

lint: setup
	@$(PYTHON_BIN)/ruff check .
	@$(PYTHON_BIN)/ruff format --check .
	@$(PYTHON_BIN)/mypy

# The types are checked beside the tests, which leave a core idle whenever they wait.
test: peers
	@$(MAKE) --no-print-directory -j 2 --output-sync=target lint suite

check:
	@./setup.sh --tests
	@$(MAKE) --no-print-directory -j 2 --output-sync=target lint suite TIER='-m "not slow and not peer and not fuzz"'

# A module's tests go to one worker, which makes what they share once.
# A fresh clone's tests are compiled once, not by each worker.
# Up to five tests that fail beside others run once more alone, as a busy machine can make one late; both results are shown.
FAILED = .venv/pytest_cache/v/cache/lastfailed
suite:
	@[ -d tests/__pycache__ ] || $(PYTHON_BIN)/python -m pytest --collect-only -qq -n 0 >/dev/null; \
	rm -f $(FAILED); $(PYTHON_BIN)/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder $(TIER) || \
	    { [ $$? = 1 ] && [ $$(wc -l < $(FAILED)) -le 7 ] && echo "Failed beside others; once more, alone:" && \
	      $(PYTHON_BIN)/python -m pytest -q --last-failed --last-failed-no-failures=none -rA $(TIER); }

bench: setup
	@$(PYTHON_BIN)/python -m benchmarks

bench-quick: setup
	@$(PYTHON_BIN)/python -m benchmarks --quick

# Resolves the dependencies anew, for every Python that is supported, without naming an index.
lock:
	@$(PYTHON_BIN)/python -m pip install -q uv
	@$(PYTHON_BIN)/uv pip compile pyproject.toml --extra dev --universal \
	    --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header -q -o requirements.lock

clean:
	rm -rf .venv demo-run build *.egg-info

# The documentation as a site, in build/docs; a broken link is an error.
docs:
	@test -x .venv-docs/bin/mkdocs || { python3 -m venv .venv-docs && .venv-docs/bin/pip install -q --disable-pip-version-check --require-hashes -r docs/requirements.lock; }
	@.venv-docs/bin/mkdocs build --strict -q

# docs/api.md, from the docstrings of the public names.
api:
	@$(PYTHON_BIN)/python docs/build_api.py
