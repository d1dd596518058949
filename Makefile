# Sets up what is missing into .venv, then does what it is asked for. Stamps in .venv/stamps remember what is done and
# from which inputs, so that a second call is quick.
#
#   make run ARGS="compression=fp16"     train (default: two parties of two workers, real digits) and print a summary
#   make test                            all tests, C++ and Python      make test ARGS="-k fp16" passes words to pytest
#   make check                           what a change must pass: format, lint, types, build, all tests
#   make bench ARGS="kv --quick"         a benchmark                    make setup, make clean
#   make docs                            the documentation, into build/site

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup run test check format bench docs cpp-tests clean

VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
BUILD := build/dev
TWO := -n 2 --dist loadfile  # many tests wait for processes, so two at once take little more than half the time
EXTRAS ?= dev,docs,mxnet,mlflow,sweep
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

CORE_INPUTS := CMakeLists.txt $(wildcard geomx/core/*.cc geomx/core/*.h geomx/bindings/* geomx/netns/* geomx/include/geomx/*.h geomx/cmake/*)
PLUGINS := $(patsubst plugins/%/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))
CPP_FORMATTED := $(wildcard geomx/core/*.cc geomx/core/*.h geomx/bindings/*.cc geomx/bindings/*.h geomx/netns/*.cc geomx/netns/*.h geomx/include/geomx/*.h tests/cpp/*.cc tests/cpp/*.h tests/cpp/*/*.cc \
                   tests/cpp/*/*.c plugins/*/src/*.cc plugins/*/src/*.h plugins/*/tests/*.cc geomx/templates/*/src/* examples/*/src/*)

help:
	@sed -n '4,8s/^# *//p' Makefile

setup: $(STAMPS)/core $(PLUGINS:%=$(STAMPS)/plugin-%)

run: setup
	$(BIN)/python -m geomx.run $(ARGS)

test: setup cpp-tests
	$(BIN)/ctest --test-dir $(BUILD) --output-on-failure -j 2
	$(BIN)/python -m pytest $(TWO) $(ARGS)

bench: setup
	$(BIN)/python -m geomx.bench $(ARGS)

# Tables of options are written anew from the dataclasses first; the tests only compare them.
docs: setup
	$(BIN)/python -m geomx.reference --write $$(grep -rl -- '<!-- reference:' docs)
	$(BIN)/python -m mkdocs build

check: setup cpp-tests
	$(BIN)/clang-format --dry-run -Werror $(CPP_FORMATTED)
	$(BIN)/ruff format --check geomx tests plugins examples
	$(BIN)/ruff check geomx tests plugins examples
	$(BIN)/mypy
	$(BIN)/ctest --test-dir $(BUILD) --output-on-failure -j 2
	$(BIN)/python -m pytest $(TWO) $(ARGS)

format: setup
	$(BIN)/clang-format -i $(CPP_FORMATTED)
	$(BIN)/ruff format geomx tests plugins examples
	$(BIN)/ruff check --fix geomx tests plugins examples

cpp-tests: $(STAMPS)/core
	@$(BIN)/cmake -S . -B $(BUILD) -DGEOMX_BUILD_TESTS=ON >$(BUILD)/configure.log || { cat $(BUILD)/configure.log; exit 1; }
	$(BIN)/cmake --build $(BUILD)

$(STAMPS)/venv: tools/system_packages.sh tools/find_python.sh
	@mkdir -p $(STAMPS)
	tools/system_packages.sh $(PYTHON)
	@python=$${PYTHON:-$$(tools/find_python.sh)} && echo "Making $(VENV) with $$python" && "$$python" -m venv $(VENV)
	@touch $@

# What builds must be in the environment itself: without isolation a rebuild takes seconds.
$(STAMPS)/build-tools: $(STAMPS)/venv
	$(PIP) install "scikit-build-core>=1.1" "nanobind>=3.1" "cmake>=3.25" ninja
	@touch $@

# Editable: Python sources are used where they lie. A change of C++ alone leaves the dependencies as they are.
$(STAMPS)/core: $(STAMPS)/build-tools pyproject.toml $(CORE_INPUTS)
	$(PIP) install --no-build-isolation $(if $(filter %build-tools pyproject.toml,$?),,--no-deps) -e ".[$(EXTRAS)]"
	@touch $@

define PLUGIN_RULE
$(STAMPS)/plugin-$(1): $(shell find plugins/$(1) -type f -not -path '*/build/*' -not -path '*/__pycache__/*' \
                         -not -path '*.egg-info/*') geomx/include/geomx/plugin.h | $(STAMPS)/core
	$$(PIP) install --no-build-isolation $$(if $$(wildcard plugins/$(1)/CMakeLists.txt),\
	  --config-settings=build-dir=$$(CURDIR)/build/plugins/$(1)) ./plugins/$(1)
	@touch $$@
endef
$(foreach plugin,$(PLUGINS),$(eval $(call PLUGIN_RULE,$(plugin))))
# mpq has no codec of its own.
$(STAMPS)/plugin-mpq: $(STAMPS)/plugin-bsc $(STAMPS)/plugin-fp16

clean:
	rm -rf build $(VENV)
