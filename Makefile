# The two commands of the README, and shorthands. Everything real is in xtask.

XTASK = cargo run --quiet --release -p xtask --

.PHONY: all demo test setup bench

all:
	cargo build --release -p finefs-cli

# finefs at work on an ext4 image, beside fuse2fs.
demo:
	@$(XTASK) demo

# Everything that proves the project: format, lints, tests, and the proofs in mounts.
test:
	@$(XTASK) test

# Installs what the proofs need and is missing.
setup:
	@$(XTASK) setup

# The comparison with fuse2fs and the kernel; needs root for the kernel's loop device.
bench: all
	@cargo run --quiet --release -p finefs-bench -- compare
