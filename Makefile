# Two commands suffice on a fresh machine: `make demo` and `make test`. Both install into .venv what they need.
PYTHON ?= python3

.PHONY: help demo demo-real demo-web test check wheel site format proto venv clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

demo: .venv/.demo  ## transcribe a sample with client, draft server and target server
	.venv/bin/python scripts/demo.py

demo-real: .venv/.demo  ## the same with Whisper's base and tiny.en, fetched once (220 MB), on human speech or FILE=talk.mp3
	MODEL=real .venv/bin/python scripts/demo.py $(if $(FILE),"$(FILE)")

demo-web: .venv/.web  ## the same in a browser, with a microphone or a sample, until Ctrl-C; MODEL=real as above
	.venv/bin/python scripts/demo_web.py

test: .venv/.dev  ## run the tests
	scripts/test

check: .venv/.dev  ## lint, format, types, generated code, contract, language, site
	scripts/check

wheel: .venv/.dev  ## build the wheel and transcribe with it in a clean environment
	scripts/wheel

site: .venv/.dev  ## write the site of docs/ to site/
	scripts/site

format: .venv/.dev  ## format the code and fix what can be fixed
	.venv/bin/ruff check --fix --exit-zero
	.venv/bin/ruff format

proto: .venv/.dev  ## regenerate specwhisper/wire/v1 from proto/
	scripts/proto

venv: .venv/.dev  ## make .venv with everything for development

clean:  ## remove .venv and everything generated but not committed
	rm -rf .venv build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

INSTALLED_FROM = pyproject.toml constraints.txt scripts/install

.venv/.demo: $(INSTALLED_FROM)
	@PYTHON="$(PYTHON)" scripts/install demo
	@touch $@

.venv/.web: $(INSTALLED_FROM)
	@PYTHON="$(PYTHON)" scripts/install web
	@touch .venv/.demo $@

.venv/.dev: $(INSTALLED_FROM)
	@PYTHON="$(PYTHON)" scripts/install dev
	@touch .venv/.demo .venv/.web $@  # it has all that the demos need
