# A thin front: Meson does the work. Every target installs the Debian packages it lacks.
BUILD ?= build
PREFIX ?= /usr/local

.PHONY: build data demo test test-slow bench install format lint clean help

help:
	@echo "make build      the program at $(BUILD)/cli/octet"
	@echo "make demo       trains on the King James text in bf16, MXFP8 and HiF8 and compares them"
	@echo "make test       the fast suites; make test-slow: every suite, minutes"
	@echo "make bench      products and quantizers against the fp32 BLAS on this machine"
	@echo "make data       the text and tokenizer of the demo, under data/"
	@echo "make install    program, library, headers, pkg-config and man page under PREFIX=$(PREFIX)"
	@echo "make lint       formatting and clang-tidy; make format: formats the sources"
	@echo "make clean      removes $(BUILD)/"

$(BUILD)/build.ninja: meson.build meson_options.txt tools/packages.txt
	@tools/install-packages build test
	@[ -f $@ ] || tools/quietly meson setup $(BUILD)

build: $(BUILD)/build.ninja
	@ninja -C $(BUILD) --quiet

test: build
	@tools/run-tests $(BUILD) fast

test-slow: build
	@tools/run-tests $(BUILD) fast slow

data: build
	@tools/install-packages demo
	@tools/make-demo-data $(BUILD)/cli/octet data

demo: data
	@tools/demo $(BUILD)/cli/octet

bench: build
	@tools/install-packages bench
	@$(BUILD)/cli/octet bench

install: build
	@tools/install $(BUILD) "$(PREFIX)"

format:
	@tools/install-packages lint
	@tools/c-files | xargs -d '\n' clang-format-14 -i

lint: build
	@tools/install-packages lint
	@tools/lint $(BUILD)

clean:
	@rm -rf $(BUILD)
