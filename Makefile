# The two commands of the README, and shorthands. Everything real is in xtask.

XTASK = cargo run --quiet -p xtask --

# The same, built with the features of all packages and their tests (that is what the test named
# here is for): what it consists of is not built again for the tests.
TESTER = export CARGO_INCREMENTAL=0; \
  cargo build --quiet --workspace --bin xtask --test order && \
  $${CARGO_TARGET_DIR:-target}/debug/xtask

# Where things are installed; DESTDIR goes before all of it.
PREFIX = /usr/local
# Where mount(8) and umount(8) look for helpers.
HELPERDIR = /sbin
HELPERS = mount.finefs mount.fuse.finefs umount.fuse.finefs umount.fuseblk.finefs
MAN = $(PREFIX)/share/man/man1
BASH = $(PREFIX)/share/bash-completion/completions/finefs
ZSH = $(PREFIX)/share/zsh/site-functions/_finefs
FISH = $(PREFIX)/share/fish/vendor_completions.d/finefs.fish

INCLUDE = $(PREFIX)/include
LIB = $(PREFIX)/lib
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

.PHONY: all pages lab lib wheel demo check test test-full advisories setup bench package install \
	install-lib uninstall

all:
	cargo build --release -p finefs-cli

# finefs-bench, which is also `finefs bench`.
lab:
	cargo build --release -p finefs-bench

# The library for programs in C, and its header.
lib:
	cargo build --release -p finefs-capi

# The Python package, in target/wheels: pip install target/wheels/*.whl
wheel:
	@cargo run --quiet --release -p xtask -- wheel

# finefs at work on an ext4 image, beside fuse2fs.
demo:
	@cargo run --quiet --release -p xtask -- demo

# For each change: format, lints, the tests beside the code, and a mount. No release build.
check:
	@$(XTASK) check

# Everything that proves the project: format, lints, tests, and the proofs in mounts.
test:
	@$(TESTER) test

# The same in full size, for hours.
test-full:
	@$(TESTER) test --full

# Known holes in what finefs is built of; fetches a database from GitHub.
advisories:
	@$(XTASK) advisories

# Manual pages in target/man, completions for bash, zsh and fish in target/completions.
pages:
	cargo run --quiet --release -p finefs-cli --example pages -- target

# Installs finefs with its manual pages and completions, its helpers for mount(8) and umount(8) as
# links to it, and finefs-bench if `make lab` has built it.
install: all pages
	install -D target/release/finefs '$(DESTDIR)$(PREFIX)/bin/finefs'
	if [ -e target/release/finefs-bench ]; then \
	  install -D target/release/finefs-bench '$(DESTDIR)$(PREFIX)/bin/finefs-bench'; fi
	install -D -m 644 -t '$(DESTDIR)$(MAN)' target/man/*.1
	install -D -m 644 target/completions/finefs.bash '$(DESTDIR)$(BASH)'
	install -D -m 644 target/completions/_finefs '$(DESTDIR)$(ZSH)'
	install -D -m 644 target/completions/finefs.fish '$(DESTDIR)$(FISH)'
	mkdir -p '$(DESTDIR)$(HELPERDIR)'
	for name in $(HELPERS); do ln -sf '$(PREFIX)/bin/finefs' '$(DESTDIR)$(HELPERDIR)/'"$$name"; done

# libfinefs with its header and its file for pkg-config.
install-lib: lib
	install -D target/release/libfinefs_capi.so '$(DESTDIR)$(LIB)/libfinefs.so.0'
	ln -sf libfinefs.so.0 '$(DESTDIR)$(LIB)/libfinefs.so'
	install -D -m 644 target/release/libfinefs_capi.a '$(DESTDIR)$(LIB)/libfinefs.a'
	install -D -m 644 crates/capi/include/finefs.h '$(DESTDIR)$(INCLUDE)/finefs.h'
	mkdir -p '$(DESTDIR)$(LIB)/pkgconfig'
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' crates/capi/finefs.pc.in \
	  > '$(DESTDIR)$(LIB)/pkgconfig/finefs.pc'

uninstall:
	rm -f '$(DESTDIR)$(LIB)/libfinefs.so.0' '$(DESTDIR)$(LIB)/libfinefs.so' \
	  '$(DESTDIR)$(LIB)/libfinefs.a' '$(DESTDIR)$(INCLUDE)/finefs.h' \
	  '$(DESTDIR)$(LIB)/pkgconfig/finefs.pc'
	rm -f '$(DESTDIR)$(MAN)'/finefs.1 '$(DESTDIR)$(MAN)'/finefs-*.1
	rm -f '$(DESTDIR)$(BASH)' '$(DESTDIR)$(ZSH)' '$(DESTDIR)$(FISH)'
	rm -f '$(DESTDIR)$(PREFIX)/bin/finefs' '$(DESTDIR)$(PREFIX)/bin/finefs-bench'
	for name in $(HELPERS); do rm -f '$(DESTDIR)$(HELPERDIR)/'"$$name"; done

# A Debian package and a static binary, in target/package. As root, `xtask package --try` also tries
# both in roots of their own.
package:
	@$(XTASK) package

# Installs what the proofs need and is missing.
setup:
	@$(XTASK) setup

# The comparison with fuse2fs and the kernel; needs root for the kernel's loop device.
bench: all lab
	@cargo run --quiet --release -p finefs-bench -- compare
