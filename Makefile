# Short names for the common tasks. Each needs a shell and, where something is missing, apt and the network.

# Rounds of the crash tests in `make soak`, and seconds per target in `make fuzz`.
SOAK_ROUNDS ?= 50
FUZZ_SECONDS ?= 60
# Seed of `make soak-faults`.
FAULT_SEED ?= 1
# Rounds and first seed of `make import-killed`.
ROUNDS ?= 100
SEED ?= 1
# Rounds of `make damage`; SEED is that of its first.
DAMAGE_ROUNDS ?= 500
# Rounds at a time.
DAMAGE_JOBS ?= 1
# Minutes of `make full-disk`.
FULL_DISK_MINUTES ?= 60
# Sizes of `make scale`, as `redoubt-testkit scale --help` has them: for example --tables 12000 --binary-logs 0.
SCALE ?=
# Statements that `make oracle` compares with a stock server's recovery, and seconds that it cuts a short history for.
ORACLE_STATEMENTS ?= 1000000
ORACLE_CUT_SECONDS ?= 3600
# Seconds of simulated worlds in `make simulate` and `make soak`.
SIMULATION_SECONDS ?= 1800
# Seconds per run of a server in `make bench-log`, and a directory on the disk to measure (its path must be short).
BENCH_SECONDS ?= 4
BENCH_DIR ?= /tmp
# The small database of `make bench-log`, without network namespaces.
BENCH_SMALL = --json --no-namespaces --bandwidth none --warehouses 4 --scale 300,2000
# The command, its tools and the libraries: the packages of crates that are installed.
INSTALLED = -p redoubt-cli -p redoubt-shim -p redoubt-group -p redoubt-net -p redoubt-bench -p redoubt-drill
# The packages of ./demo, without features that it does not use: see docs/dev/crates.md.
DEMO = --no-default-features -p redoubt-cli -p redoubt-shim -p redoubt-workload
# Where `make install` puts things; see docs/install.md. BUILD is where the binaries are, made if they are missing. In its
# folder `experimental` are those of `make install-experimental`.
PREFIX ?= /usr/local
DESTDIR ?=
BUILD ?= $(or $(CARGO_TARGET_DIR),target)/release
# Where cargo puts what the recipes below build and start.
BUILT = $(or $(CARGO_TARGET_DIR),target)/release
bindir ?= $(PREFIX)/bin
librarydir ?= $(PREFIX)/lib/redoubt
man1dir ?= $(PREFIX)/share/man/man1
bashdir ?= $(PREFIX)/share/bash-completion/completions
zshdir ?= $(PREFIX)/share/zsh/site-functions
fishdir ?= $(PREFIX)/share/fish/vendor_completions.d
unitdir ?= $(PREFIX)/lib/systemd/system
sysusersdir ?= $(PREFIX)/lib/sysusers.d
docdir ?= $(PREFIX)/share/doc/redoubt
# Blocks of `make results`, all if there are none; `scripts/results --list` shows them.
RESULTS ?=
# Options of `make bench-apply`.
BENCH_APPLY ?= --tables-mib 4096 --redo-mib 2048 --pools 1024,6144
# Options of `make bench`, for example BENCH="--warehouses 10 --pool 128M,512M --repetitions 3".
BENCH ?= --warehouses 2 --pool 128M --bandwidth 200mbit,none --seconds 10
# Transactions of each recording in `make flash`. Fewer than 20000 are too few for the batches of a node, which is an
# error.
FLASH_TRANSACTIONS ?= 40000

# A misspelt name on the command line would change nothing. Known are those that this file sets, those of the tools, and
# options of scripts.
KNOWN = $(shell sed -n 's/^\([A-Za-z_][A-Za-z_0-9]*\) *?\{0,1\}=.*/\1/p' $(MAKEFILE_LIST)) \
  SERVER_SUITE NET_SUITE GROUP_SUITE NET_BENCH CARGO% RUST% REDOUBT_% CC CXX AR CFLAGS CXXFLAGS LDFLAGS SHELL TMPDIR \
  INSTALL PKG_CONFIG AM_UPDATE_INFO_DIR
GIVEN = $(foreach name,$(.VARIABLES),$(if $(findstring command line,$(origin $(name))),$(name)))
UNKNOWN = $(filter-out $(KNOWN),$(GIVEN))
ifneq ($(strip $(UNKNOWN)),)
$(error unknown variable: $(strip $(UNKNOWN)))
endif

.PHONY: demo build build-experimental install install-experimental uninstall test lint bench bench-apply bench-export bench-log microbench results soak batteries simulate soak-faults damage fuzz nvdimm fdp nfs group group-anchor group-rounds model flash flash-memory flash-build server-suite group-suite net-suite net-bench sockmap sanitize oracle import-killed full-disk scale checked rust-version deny helm-check book deb deb-test image

demo:
	./demo

test:
	./test

build:
	cargo build --release --locked $(INSTALLED)

# The command and the library with experimental device code, in the folder `experimental` of the build. Afterwards the
# build is again without that code.
build-experimental:
	cargo build --release --locked --features experimental-devices $(INSTALLED)
	install -D -m 755 -t $(or $(CARGO_TARGET_DIR),target)/release/experimental \
	  $(or $(CARGO_TARGET_DIR),target)/release/redoubt $(or $(CARGO_TARGET_DIR),target)/release/libredoubt.so
	cargo build --release --locked $(INSTALLED)

# Only what is missing: `sudo make install` after `make build` compiles nothing as root.
$(BUILD)/redoubt $(BUILD)/libredoubt.so $(BUILD)/libredoubt_group.so $(BUILD)/libredoubt_net.so $(BUILD)/redoubt-bench $(BUILD)/redoubt-drill:
	cargo build --release --locked $(INSTALLED)

$(BUILD)/experimental/redoubt $(BUILD)/experimental/libredoubt.so:
	$(MAKE) build-experimental

# For packages: make install PREFIX=/usr DESTDIR=/some/dir. It starts nothing, and writes nothing below /etc and /var.
install: $(BUILD)/redoubt $(BUILD)/libredoubt.so $(BUILD)/libredoubt_group.so $(BUILD)/libredoubt_net.so $(BUILD)/redoubt-bench $(BUILD)/redoubt-drill
	BUILD="$(BUILD)" bindir="$(bindir)" librarydir="$(librarydir)" man1dir="$(man1dir)" bashdir="$(bashdir)" zshdir="$(zshdir)" \
	  fishdir="$(fishdir)" unitdir="$(unitdir)" sysusersdir="$(sysusersdir)" docdir="$(docdir)" DESTDIR="$(DESTDIR)" scripts/install

# Beside `make install`: the command redoubt-experimental and its library, which have experimental device code.
install-experimental: $(BUILD)/experimental/redoubt $(BUILD)/experimental/libredoubt.so
	BUILD="$(BUILD)" bindir="$(bindir)" librarydir="$(librarydir)" man1dir="$(man1dir)" bashdir="$(bashdir)" zshdir="$(zshdir)" \
	  fishdir="$(fishdir)" unitdir="$(unitdir)" sysusersdir="$(sysusersdir)" docdir="$(docdir)" DESTDIR="$(DESTDIR)" \
	  scripts/install --experimental

# Removes the files that `make install` and `make install-experimental` with the same settings put there. Data and settings
# stay.
uninstall:
	BUILD="$(BUILD)" bindir="$(bindir)" librarydir="$(librarydir)" man1dir="$(man1dir)" bashdir="$(bashdir)" zshdir="$(zshdir)" \
	  fishdir="$(fishdir)" unitdir="$(unitdir)" sysusersdir="$(sysusersdir)" docdir="$(docdir)" DESTDIR="$(DESTDIR)" scripts/install --remove

# The Debian packages redoubt, redoubt-node, redoubt-tools and redoubt-experimental, in target/deb. See docs/install.md.
deb:
	scripts/deb/build

# The packages in a guest with systemd: install, kill, upgrade, remove, purge, while a client writes rows; needs root.
# See docs/install.md.
deb-test:
	scripts/deb/run

# The container image, from the packages, without a daemon; needs root. In target/deb-image.
image:
	scripts/deb/image

lint:
	cargo fmt --check
	scripts/prose
	scripts/links
	cargo clippy --release --workspace --features experimental-devices --all-targets -- -D warnings
	cargo clippy --release --workspace --exclude redoubt-fuzz -- -D warnings
	cargo clippy --release $(DEMO) -- -D warnings
	cargo check --release $(INSTALLED)

# Decoders and page code with arithmetic that overflows and debug assertions as failures; its first part is in ./test.
checked:
	scripts/checked --all

# Everything built once with the oldest Rust that Cargo.toml promises; needs rustup.
rust-version:
	scripts/rust-version

# docs/ as a book, in target/book; needs mdbook.
book:
	scripts/book

# The Helm chart, rendered and compared with the schemas of Kubernetes; needs helm, and the network for the schemas.
helm-check:
	scripts/helm-check

# Licences, sources and advisories of the dependencies; needs cargo-deny.
deny:
	scripts/deny

# TPC-C on a local disk, on network storage and on Redoubt, some minutes; needs root, nbdkit and libnbd-bin. Report and
# JSON lines in target/bench/. See docs/dev/bench.md. Options that use persistent memory need experimental device code.
bench:
	cargo build --release -p redoubt-cli -p redoubt-shim -p redoubt-bench \
	  $(if $(findstring local-log,$(BENCH))$(findstring pmem,$(BENCH)),--features experimental-devices)
	mkdir -p target/bench $(BENCH_DIR)
	TMPDIR=$(BENCH_DIR) $(BUILT)/redoubt bench --json --report target/bench/report.html $(BENCH) \
	  > target/bench/bench.json

# How long a node takes to apply a backlog of redo over cold tables, and a stock server to recover from the same; needs
# root (it empties the kernel's page cache) and six times the tables' size of disk.
bench-apply:
	cargo build --release -p redoubt-cli -p redoubt-shim -p redoubt-testkit
	TMPDIR=$(BENCH_DIR) $(BUILT)/redoubt-testkit apply-backlog $(BENCH_APPLY)

# A server's throughput while its volume is exported, about ten minutes and 30 GB of disk; needs two cores.
bench-export:
	cargo build --release -p redoubt-cli -p redoubt-shim
	TMPDIR=$(BENCH_DIR) scripts/bench-export

# Ratios of one run, about 25 minutes: waiters, log devices, whole servers with different logs, page bytes per redo
# byte. BENCH_SECONDS is per run of a server, BENCH_DIR is on the disk to measure. Tables go to the terminal, JSON lines
# to target/bench/. See lab/2026-11-24-log.md.
bench-log:
	cargo build --release --workspace --features experimental-devices
	mkdir -p target/bench $(BENCH_DIR)
	cargo bench -q -p redoubt-logdev --bench waiters -- --dir $(BENCH_DIR) > target/bench/waiters.json
	cargo bench -q -p redoubt-logdev --features experimental-devices --bench devices -- --dir $(BENCH_DIR) > target/bench/devices.json
	TMPDIR=$(BENCH_DIR) $(BUILT)/redoubt bench $(BENCH_SMALL) --seconds $(BENCH_SECONDS) --repetitions 2 \
	  --backend redoubt --node-variant "block=--log-device block" \
	  --node-variant "pmem=--log-device pmem --pretend-pmem --log-path {memory}" > target/bench/node.json
	TMPDIR=$(BENCH_DIR) $(BUILT)/redoubt bench $(BENCH_SMALL) --seconds $(BENCH_SECONDS) --repetitions 2 \
	  --backend local,memory-log,local-log > target/bench/local-log.json
	TMPDIR=$(BENCH_DIR) $(BUILT)/redoubt bench $(BENCH_SMALL) --warm-up 15000 --transactions 50000 \
	  --redoubt-node-option=--ring=256MiB --redoubt-node-option=--apply-interval=3600 --backend redoubt \
	  --node-variant "batch-1=--batch 1MiB" --node-variant "batch-4=--batch 4MiB" \
	  --node-variant "batch-16=--batch 16MiB" > target/bench/coalescing.json

# Measures again what the newest lab/DATE-results.md shows, into a report of today: most of a day, on a quiet machine;
# needs root. See scripts/results --help.
results:
	TMPDIR=$(BENCH_DIR) scripts/results $(RESULTS)

# The small benches of single functions.
microbench:
	cargo bench -p redoubt-redo -p redoubt-page -p redoubt-wire -p redoubt-node -p redoubt-pagestore --benches
	cargo bench -p redoubt-logdev --features experimental-devices --bench append --bench pmem

# Heavier runs of tests that always run: the environment says how many rounds.
soak:
	cargo build --release --workspace --features experimental-devices
	REDOUBT_SOAK_ROUNDS=$(SOAK_ROUNDS) cargo test --release -p redoubt-testkit --features experimental-devices --test volume --test devices -- crash:: local_log:: --nocapture
	$(MAKE) batteries
	$(MAKE) soak-faults
	$(MAKE) oracle
	$(MAKE) fuzz
	$(MAKE) simulate

# The page sizes and settings that ./test leaves out: all features of InnoDB on a volume, and on the stock server; and the
# redo of a MySQL server, read and replayed (half an hour, 5 GB of disk).
batteries:
	cargo build --release --locked --workspace --features experimental-devices
	cargo test --release --workspace --features experimental-devices --test volume --test versions -- --ignored features
	cargo test --release -p redoubt-redo --test mysql_real_log -- --ignored
	cargo test --release -p redoubt-page --test replay_mysql -- --ignored --test-threads 1

# Fresh worlds of the node's simulation, on all cores: see docs/dev/simulation.md. And all planted bugs, and more seeds
# of what clients of `tcp` meet on a bad link.
simulate:
	REDOUBT_SIMULATION_SECONDS=$(SIMULATION_SECONDS) cargo test --release -p redoubt-node --test simulation soak -- --ignored --nocapture
	scripts/planted --all
	REDOUBT_TCP_SEEDS=1..5000 cargo test --release -p redoubt-tcp --test simulation -- --nocapture

# Ledger rounds under faults and kills, and isolation histories beside the stock server: a line per round, then JSON.
# See docs/dev/faults.md. FAULT_SEED replays.
soak-faults:
	cargo build --release -p redoubt-cli -p redoubt-shim -p redoubt-faults -p redoubt-testkit
	$(BUILT)/redoubt-testkit fault-rounds --seed $(FAULT_SEED) --rounds $$((6 * $(SOAK_ROUNDS)))
	$(BUILT)/redoubt-testkit fault-rounds --server mysql-9.7 --seed $(FAULT_SEED) --rounds $$((6 * $(SOAK_ROUNDS)))
	$(BUILT)/redoubt-testkit isolation --seed $(FAULT_SEED) --runs $$(($(SOAK_ROUNDS) / 5 + 1))

# Damage to the files of a volume under load: which promises hold, and the effect of each kind of damage. Ten seconds to a
# minute a round. Directories of rounds that break a promise are in target/damage. See docs/dev/damage.md.
damage:
	cargo build --release -p redoubt-cli -p redoubt-shim -p redoubt-testkit
	$(BUILT)/redoubt-testkit damage-rounds --seed $(SEED) --rounds $(DAMAGE_ROUNDS) --jobs $(DAMAGE_JOBS) --keep target/damage

# MariaDB's own test suite on the plain server and on volumes, compared: hours. Options in SERVER_SUITE, for example
# SERVER_SUITE="--suite parts --resume". All in target/server-suite/. See docs/dev/server-suites.md.
server-suite:
	scripts/server-suite/run $(SERVER_SUITE)

# MariaDB's or MySQL's own tests on the plain server and through a layer of the network library, compared; those about
# connections take a quarter of an hour. Options in NET_SUITE, for example NET_SUITE="--layer bypass --suite innodb". All
# in target/net-suite/. See docs/dev/server-suites.md.
net-suite:
	scripts/net-suite/run $(NET_SUITE)

# Compares the layers of the network library on this machine, side by side: nine minutes for clients on this host, five
# for those elsewhere (as root), much longer for thousands of connections. Options in NET_BENCH. See docs/net/README.md.
net-bench:
	cargo build --release -p redoubt-cli -p redoubt-net -p redoubt-testkit
	$(BUILT)/redoubt-testkit net-bench $(NET_BENCH)

# Effects on programs of a bypass by a sockmap of this kernel; root. See docs/net/bypass.md.
sockmap:
	cargo test --release --locked -p redoubt-net --test sockmap -- --ignored --nocapture

# MariaDB's own suites of groups of servers, with Galera and with ours, compared: two hours. Options in GROUP_SUITE, for
# example GROUP_SUITE="--test galera.galera_admin --repeat 3". All in target/group-suite/. See
# docs/dev/server-suites.md.
group-suite:
	scripts/group-suite/run $(GROUP_SUITE)

# Servers killed under random load: each data directory becomes a volume, compared with stock recovery. ROUNDS rounds of
# about 10 seconds with MariaDB and of 17 with MySQL 9.7, from seed SEED on. See docs/dev/oracle.md.
import-killed:
	cargo build --release -p redoubt-cli -p redoubt-shim -p redoubt-testkit
	$(BUILT)/redoubt-testkit import-killed --rounds $(ROUNDS) --seed $(SEED) --go-on
	$(BUILT)/redoubt-testkit import-killed --server mysql-9.7 --rounds $(ROUNDS) --seed $(SEED) --go-on

# Costs of starts and takeovers with very many tables, binary logs, volumes, with much data, and with a tenth of each.
# Sizes in SCALE. See lab/2026-11-25-results.md.
scale:
	cargo build --release -p redoubt-cli -p redoubt-shim -p redoubt-testkit
	$(BUILT)/redoubt-testkit scale $(SCALE)

# The node's disk full for FULL_DISK_MINUTES, once with the log on it and once with the pages alone, under a server that
# writes.
full-disk:
	cargo build --release -p redoubt-cli -p redoubt-shim -p redoubt-testkit
	REDOUBT_FULL_DISK_MINUTES=$(FULL_DISK_MINUTES) cargo test --release -p redoubt-testkit --test trouble -- --ignored --nocapture full_for_an_hour

# Random histories, sysbench, TPC-C and cuts of them against a stock server's recovery: hours. See docs/dev/oracle.md.
oracle:
	cargo build --release -p redoubt-testkit
	mkdir -p target/oracle
	$(BUILT)/redoubt-testkit oracle run --statements $(ORACLE_STATEMENTS) --cuts 20 > target/oracle/random.json
	$(BUILT)/redoubt-testkit oracle run --kind sysbench --statements 100000 --each 5000 > target/oracle/sysbench.json
	$(BUILT)/redoubt-testkit oracle run --kind tpcc --statements 100000 --each 5000 > target/oracle/tpcc.json
	$(BUILT)/redoubt-testkit oracle cuts --seed 1 --statements 40 --seconds $(ORACLE_CUT_SECONDS) \
	  > target/oracle/cuts.json

# Every decoder for FUZZ_SECONDS, after a canary has shown that the engine finds bugs. Needs a C++ compiler, and neither
# nightly nor cargo-fuzz. See docs/dev/fuzzing.md.
fuzz:
	FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz

# The unsafe parts and the decoders under AddressSanitizer: tests of the crates, then the fuzz targets on their corpus.
# See docs/dev/fuzzing.md.
sanitize:
	scripts/sanitize

# Persistent memory: a guest with an emulated NVDIMM is reset while it commits. See docs/devices/nvdimm.md.
nvdimm:
	scripts/nvdimm/run

# Data placement and untorn writes: a guest with an emulated FDP drive, by the drive's own counters. See
# docs/devices/fdp.md.
fdp:
	scripts/fdp/run

# NFS: the kernel's client in a guest, on a node and a server there. See docs/volume/how-to/views.md.
nfs:
	scripts/nfs/run

# Requirements on a group of servers, checked with Galera first: the package galera-4 is unpacked into target/galera and
# not installed. A quarter of an hour; figures on standard output.
GALERA = target/galera/usr/lib/galera/libgalera_smm.so
group-anchor: $(GALERA)
	bash -euc '. scripts/setup.sh; setup_paths; setup_packages "$$REDOUBT_BUILD_NEEDS $$REDOUBT_SERVER_NEEDS $$REDOUBT_TEST_NEEDS"; setup_plugins'
	REDOUBT_GALERA=$(CURDIR)/$(GALERA) cargo test --release -p redoubt-testkit --test group galera -- \
	  --ignored --nocapture --test-threads 1

# The same checks with our own library, all of them: five minutes.
group:
	bash -euc '. scripts/setup.sh; setup_paths; setup_packages "$$REDOUBT_BUILD_NEEDS $$REDOUBT_SERVER_NEEDS $$REDOUBT_TEST_NEEDS"; setup_plugins'
	cargo build --release -p redoubt-cli -p redoubt-group
	cargo test --release -p redoubt-testkit --test group members::own -- --include-ignored --nocapture --test-threads 1

# All states of a model of the group's consensus, at small bounds; some 15 minutes. See crates/group/model/README.md.
model:
	cd crates/group/model && cargo run --release

# Random trouble for a group under load, ROUNDS of it (some 20 s each), from seed SEED on; as root.
group-rounds:
	bash -euc '. scripts/setup.sh; setup_paths; setup_packages "$$REDOUBT_BUILD_NEEDS $$REDOUBT_SERVER_NEEDS $$REDOUBT_TEST_NEEDS"; setup_plugins'
	cargo build --release -p redoubt-cli -p redoubt-group
	REDOUBT_GROUP_ROUNDS=$(or $(ROUNDS),200) REDOUBT_GROUP_SEED=$(or $(SEED),1) \
	  cargo test --release -p redoubt-testkit --test group -- rounds:: two_members:: --include-ignored --nocapture

$(GALERA):
	mkdir -p target/galera
	cd target/galera && { apt-get download -qq galera-4 || { apt-get update -qq && apt-get download -qq galera-4; }; }
	cd target/galera && dpkg -x galera-4_*.deb .
	test -e $@

# Disk writes of servers, tagged by origin, and the flash that a modelled drive programs for them: table, plots, JSON.
# Needs root, loop devices, tracefs and 8 GB; about half an hour, longer on a busy machine. All in target/flash/. See
# lab/2026-11-24-flash.md.
flash: flash-build
	rm -f target/flash/*.trace target/flash/*.json target/flash/*.summary target/flash/*.part
	$(BUILT)/redoubt-testkit flash-trace --transactions $(FLASH_TRANSACTIONS)
	$(BUILT)/redoubt-flash table --traces target/flash --out target/flash

# More rows for the same table: the same memory for all. A quarter of an hour.
flash-memory: flash-build
	$(BUILT)/redoubt-testkit flash-trace --transactions $(FLASH_TRANSACTIONS) --layout stock-doublewrite \
	  --pool 384 --suffix "pool 384 MiB"
	$(BUILT)/redoubt-testkit flash-trace --transactions $(FLASH_TRANSACTIONS) \
	  --layout redoubt-atomic,redoubt-journal --journal-mb 128 --pool 96 \
	  --node-options "--ring 32MiB --batch 16MiB" --suffix "pool 96 + ring 32 MiB"
	$(BUILT)/redoubt-flash table --traces target/flash --out target/flash

flash-build:
	cargo build --release -p redoubt-cli -p redoubt-shim -p redoubt-flash -p redoubt-testkit
	mkdir -p target/flash
