# shellcheck shell=bash
# A Debian of packages from the machine's own mirror: a disk for a guest, an archive for a container. Sourced by ./run
# and ./image after ../guest/host.sh.

DEBIAN_SUITE=bookworm
DEBIAN_DIR=$GUEST_DIR/debian
DEBIAN_DISK=$DEBIAN_DIR/disk.ext4
DEBIAN_DISK_SIZE=3G

# The version that `make deb` gives the packages.
package_version() { sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1; }

# bootstrap TARGET PACKAGE...: a minimal Debian with these, as a directory or an archive.
bootstrap() {
    local target=$1 include=()
    shift
    if [ $# -gt 0 ]; then include=("--include=$*"); fi
    # shellcheck source=scripts/setup.sh
    . scripts/setup.sh
    setup_paths
    setup_packages "mmdebstrap:mmdebstrap mkfs.ext4:e2fsprogs"
    # How to reach the mirror is taken over from the machine, as in ../guest/packages.sh.
    apt-config dump | awk '/^Acquire::/ && !/^Acquire::(IndexTargets|Allow|Languages)/' >"$RUN_DIR/apt.conf"
    # Without the descriptors of a run: mmdebstrap needs a free one below 10, for a shell that knows no others.
    TMPDIR=$RUN_DIR timeout "$APT_LIMIT_S" mmdebstrap --variant=minbase --aptopt="$RUN_DIR/apt.conf" \
        "${include[@]}" "$DEBIAN_SUITE" "$target" \
        "deb [signed-by=$DEBIAN_KEYRING] $(debian_mirror) $DEBIAN_SUITE main" >>"$LOG" 2>&1 6>&- 7>&- 8<&- 9>&- ||
        fail "mmdebstrap failed or took more than $APT_LIMIT_S s; its messages are at the end of $LOG"
}

# make_debian_disk PACKAGE...: $DEBIAN_DISK, unless it is there already, with these packages.
make_debian_disk() {
    local root=$RUN_DIR/debian
    if [ -e "$DEBIAN_DISK" ] && [ "$(cat "$DEBIAN_DIR/packages")" = "$*" ]; then return 0; fi
    say "making a disk with Debian and $*"
    mkdir -p "$DEBIAN_DIR"
    rm -rf "$root" "$DEBIAN_DISK"
    bootstrap "$root" "$@"
    # Without one, the guest's systemd would take each start for the first.
    echo 0123456789abcdef0123456789abcdef >"$root/etc/machine-id"
    mkfs.ext4 -q -d "$root" "$DEBIAN_DISK.new" "$DEBIAN_DISK_SIZE" >>"$LOG" 2>&1 || fail "mkfs.ext4 failed; see $LOG"
    rm -rf "$root"
    printf '%s\n' "$*" >"$DEBIAN_DIR/packages"
    mv "$DEBIAN_DISK.new" "$DEBIAN_DISK"
}
