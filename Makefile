# Two commands: `make demo` shows the main job, `make test` is what a change must pass.
# Everything is installed into .venv at the root, from the locks in requirements/.

.PHONY: help demo test setup setup-images setup-dev site clean

help:
	@echo "make demo    set up, then run the main job on embedded defaults (no account, no server)"
	@echo "make test    set up, then run what a change must pass: lint, types, tests"
	@echo "make setup   only install the program, as .venv/bin/fleet (setup-images: Ansible too)"
	@echo "make site    build the documentation's site into .site"
	@echo "make clean   remove .venv and caches; state in .fleet stays"

setup:
	@sh tools/setup.sh run

setup-images:
	@sh tools/setup.sh images

setup-dev:
	@sh tools/setup.sh dev

demo: setup
	@.venv/bin/python tools/demo.py

test: setup-dev
	.venv/bin/nox -s lint types tests

# Without the development tools: the pipeline builds it with each publication of pages.
site: .nox/site/installed.lock
	NO_MKDOCS_2_WARNING=1 .nox/site/bin/mkdocs build

.nox/site/installed.lock: requirements/docs.lock
	python3 -m venv --clear .nox/site
	.nox/site/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $<
	cp $< $@

clean:
	rm -rf .venv .nox .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf .import_linter_cache .coverage .site build dist
