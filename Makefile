# Short names for the common tasks. Each needs a shell and, where something is missing, apt and the network.

# Rounds of the crash tests in `make soak`, and seconds per target in `make fuzz`.
SOAK_ROUNDS ?= 50
FUZZ_SECONDS ?= 60

.PHONY: demo test lint bench compare soak fuzz nvdimm

demo:
	./demo

test:
	./test

lint:
	cargo fmt --check
	cargo clippy --workspace --all-targets -- -D warnings

bench:
	cargo bench --workspace --benches

# Throughput with and without Redoubt, in turns, on this machine.
compare:
	cargo build --release --workspace
	target/release/redoubt-testkit compare

# Heavier runs of tests that always run: the environment says how many rounds.
soak:
	cargo build --release --workspace
	REDOUBT_SOAK_ROUNDS=$(SOAK_ROUNDS) cargo test --release -p redoubt-testkit --test crash -- --nocapture
	$(MAKE) fuzz

# Needs cargo-fuzz and a nightly toolchain: cargo install cargo-fuzz; rustup toolchain install nightly
fuzz:
	@cargo +nightly fuzz --version >/dev/null 2>&1 || { \
	  echo "cargo-fuzz or a nightly toolchain is missing:"; \
	  echo "  rustup toolchain install nightly && cargo install cargo-fuzz"; exit 1; }
	@for target in $$(cargo +nightly fuzz list); do \
	  echo "fuzzing $$target for $(FUZZ_SECONDS) s"; \
	  cargo +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

# Persistent memory: a guest with an emulated NVDIMM is reset while it commits. See docs/nvdimm.md.
nvdimm:
	scripts/nvdimm/run
