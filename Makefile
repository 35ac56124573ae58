# make demo: the whole way on a real site.   make test: lint, types and all tests.   Both set up first.
.PHONY: setup peers demo test lint bench bench-quick lock docs api clean

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

# Tests of a file share what it makes; the short files are the last, which keeps all workers busy to the end.
test: lint peers
	@$(PYTHON_BIN)/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder

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
