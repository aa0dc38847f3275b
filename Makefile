# A thin front: Meson does the work. Every target installs the Debian packages it lacks.
BUILD ?= build
PREFIX ?= /usr/local

.PHONY: build data demo test test-slow bench install format lint clean help

help:
	@echo "make build    the program at $(BUILD)/cli/octet"
	@echo "make demo     trains on the King James text in bf16, MXFP8 and HiF8 and compares them"
	@echo "make test     the fast suites; make test-slow: every suite, minutes"
	@echo "make bench    products and quantizers against the fp32 BLAS on this machine"
	@echo "make data     the text and tokenizer of the demo, under data/"
	@echo "make install  program, library, headers, pkg-config and man page under PREFIX=$(PREFIX)"

$(BUILD)/build.ninja: meson.build meson_options.txt
	@tools/install-packages build test
	@[ -f $@ ] || meson setup $(BUILD) --prefix $(PREFIX) >/dev/null

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

bench:
	@tools/install-packages build test bench
	@$(MAKE) --no-print-directory build
	@$(BUILD)/cli/octet bench

# A tree that was set up with another prefix gets this one, if it was given.
install: build
ifneq ($(origin PREFIX),file)
	@meson configure $(BUILD) --prefix $(PREFIX)
	@ninja -C $(BUILD) --quiet >/dev/null
endif
	@meson install -C $(BUILD) --no-rebuild

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

lint: build
	@tools/lint $(BUILD)

clean:
	@rm -rf $(BUILD)
