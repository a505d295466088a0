# shellcheck shell=bash
# Common parts of guest runs, on the host: messages, one run at a time, booting, and the checks that the guest reports.
# Sourced by ../nvdimm/run, ../fdp/run, ../nfs/run, ../deb/run and ../deb/image from the top of the source tree. They
# set before:
#   RUN_DIR         the run's folder: logs, disks, initramfs
#   BOOT_LIMIT_S    time limit of each boot, its work included
#   KERNEL_SUITE    Debian suite of the guest's kernel.
# They also define required_checks NAME, which prints the names of the checks that the boot NAME must report.

# Common parts of all runs: packages, a new data directory. See packages.sh and image.sh.
GUEST_DIR=$PWD/target/guest
LOGS=$RUN_DIR/logs
LOG=$LOGS/run.log
BUSYBOX=$GUEST_DIR/host/root/bin/busybox
QEMU_ROOT=$GUEST_DIR/host/root

say() { printf '[%3d s] %s\n' "$SECONDS" "$*" | tee -a "$LOG" >&2; }

fail() {
    printf 'error: %s\n' "$*" | tee -a "$LOG" >&2
    exit 1
}

# shellcheck source=scripts/guest/packages.sh
. scripts/guest/packages.sh
# shellcheck source=scripts/guest/image.sh
. scripts/guest/image.sh

qemu=""
# The guest and its disks are not needed after the run; the logs are.
cleanup() {
    if [ -n "$qemu" ]; then
        kill -KILL "$qemu" 2>/dev/null || true
        wait "$qemu" 2>/dev/null || true
    fi
    rm -f "$RUN_DIR"/*.img "$RUN_DIR"/monitor.in "$RUN_DIR"/monitor.out
}

# Starts a run: an empty folder for its logs, a pipe to the emulator's monitor (descriptor 7), everything gone at the
# end.
start_run() {
    mkdir -p "$GUEST_DIR" "$LOGS"
    # One run at a time: the packages are shared.
    exec 9>"$GUEST_DIR/lock"
    flock -n 9 || {
        echo "error: another run uses $GUEST_DIR" >&2
        exit 1
    }
    rm -f "$LOGS"/*
    : >"$LOG"
    trap cleanup EXIT
    trap 'exit 130' INT TERM
    rm -f "$RUN_DIR"/monitor.in "$RUN_DIR"/monitor.out
    mkfifo "$RUN_DIR/monitor.in" "$RUN_DIR/monitor.out"
    # Opened for both directions, so that opening and reading never wait for the other side.
    exec 7<>"$RUN_DIR/monitor.in" 6<>"$RUN_DIR/monitor.out" 8</dev/null
}

# build_programs PACKAGE...: the release build of these, with experimental device code, as in ./test.
build_programs() {
    say "building the programs (cargo build --release)"
    # shellcheck disable=SC2046 # one option per package
    cargo build --quiet --release --locked --features experimental-devices $(printf -- '-p %s ' "$@") 2>>"$LOG" || fail "the build failed; see $LOG"
}

# build_library_tests PACKAGE: the release build of its library's tests, with experimental device code, as $RUN_DIR/PACKAGE-tests.
build_library_tests() {
    local tests
    tests=$(cargo test --quiet --release --locked -p "redoubt-$1" --lib --no-run \
        --features experimental-devices --message-format=json 2>>"$LOG" |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p') || fail "the build of the tests of $1 failed; see $LOG"
    cp "$tests" "$RUN_DIR/$1-tests"
}

# boot NAME INITRAMFS "KERNEL ARGUMENTS" MACHINE QEMU_ARGUMENT...: starts the guest as $qemu; sets $console and
# $results, the files of its two serial lines.
boot() {
    local name=$1 initramfs=$2 append=$3 machine=$4 kernel
    shift 4
    kernel=$(find "$GUEST_DIR/kernel/root" -name 'vmlinuz*' -type f)
    [ -f "$kernel" ] || fail "not exactly one kernel in $GUEST_DIR/kernel/root: $kernel"
    console=$LOGS/$name.console
    results=$LOGS/$name.results
    : >"$console"
    : >"$results"
    # With -no-reboot a reset ends the emulator at once, without any word to the guest.
    private_program qemu-system-x86_64 /usr/bin/qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
        -L "$QEMU_ROOT/usr/share/qemu" -L "$QEMU_ROOT/usr/share/seabios" \
        -machine "$machine" -accel tcg,thread=multi -cpu max -smp 2 "$@" \
        -chardev "pipe,id=monitor,path=$RUN_DIR/monitor" -mon chardev=monitor \
        -serial "file:$console" -serial "file:$results" \
        -kernel "$kernel" -initrd "$initramfs" -append "console=ttyS0 panic=-1 $append" \
        <&8 >>"$LOG" 2>&1 9>&- &
    qemu=$!
    boot_end_s=$((SECONDS + BOOT_LIMIT_S))
    stage=""
}

# Ends this run if the guest reported a failed check, or takes too long.
check_progress() {
    local failed
    failed=$(grep -a '^CHECK .* FAILED' "$results" | head -n 1 || true)
    [ -z "$failed" ] || fail "the guest reports: $failed (all its messages: $console)"
    [ "$SECONDS" -lt "$boot_end_s" ] || fail "the guest was not done within $BOOT_LIMIT_S s; see $console"
}

# Shows the check that the guest reported last, once.
show_progress() {
    local now
    now=$(grep -a '^CHECK ' "$results" | tail -n 1 || true)
    if [ -n "$now" ] && [ "$now" != "$stage" ]; then
        stage=$now
        say "  $stage"
    fi
}

qemu_runs() { kill -0 "$qemu" 2>/dev/null; }

# Waits for the end of the emulator.
wait_for_qemu() {
    while qemu_runs; do
        check_progress
        sleep 0.1
    done
    wait "$qemu" 2>/dev/null || true
    qemu=""
}

# Waits until the guest has done its work and switched itself off.
run_to_end() {
    wait_for_qemu
    check_progress
    grep -aqx 'DONE \.' "$results" || fail "the guest ended before its work was done; see $console"
}

# require_checks NAME: the guest must have reported each of the boot's checks as successful.
require_checks() {
    local name
    for name in $(required_checks "$1"); do
        grep -aqx "CHECK $name ok \." "$LOGS/$1.results" ||
            fail "the guest did not report the check $name; see $LOGS/$1.console"
    done
}
