# shellcheck shell=bash
# Prepares a machine to build, test and demonstrate Redoubt. Sourced by ./test and ./demo; may also be run
# by itself: bash scripts/setup.sh
#
# It installs what is missing and prints it first: packages by name with apt, Rust with rustup. It changes nothing that
# is there already, starts no service, and needs root or sudo only when a package is missing.

# setup_timeout SECONDS COMMAND...: a network that hangs is one that is not there. timeout makes a process group of its
# own and passes signals on to it, so setup_end_group signals timeout as well.
setup_timeout() { timeout --kill-after=10 "$@"; }

# The same for what runs in front: an interrupt at the terminal reaches the command.
setup_timeout_in_front() { timeout --foreground --kill-after=10 "$@"; }

# Several times what they take: apt-get with its packages, rustup with a toolchain.
SETUP_APT_LIMIT=1800
SETUP_RUST_LIMIT=1800

# setup_end_group GROUP: ends a process group and what setup_timeout has started from it.
setup_end_group() {
    local members
    members=$(pgrep -d , -g "$1") || return 0
    pkill -TERM -x -P "$members" timeout || true
    kill -TERM -- "-$1" 2>/dev/null || true
}

# Programs, each with the Debian package that contains it: what a build needs, what ./demo needs, what tests need.
REDOUBT_BUILD_NEEDS="cc:gcc make:make curl:curl"
REDOUBT_SERVER_NEEDS="mariadbd:mariadb-server-core mariadb-install-db:mariadb-server-core mariadb:mariadb-client-core \
sysbench:sysbench"
REDOUBT_TEST_NEEDS="git:git mariadb-backup:mariadb-backup innochecksum:mariadb-server-core ip:iproute2 nft:nftables \
nbdkit:nbdkit nbdfuse:libnbd-bin fusermount3:fuse3 nfs-ls:libnfs-utils rsync:rsync ps:procps"

setup_say() { printf '%s\n' "$*" >&2; }

setup_fail() {
    setup_say "error: $*"
    exit 1
}

# setup_as_root: sets SETUP_AS_ROOT to the words that make root of this user, none for root. A password is asked for in
# front of a terminal only: in the background sudo would wait until its limit.
setup_as_root() {
    SETUP_AS_ROOT=()
    if [ "$(id -u)" -eq 0 ]; then return 0; fi
    command -v sudo >/dev/null 2>&1 || return 1
    if ! sudo -n true 2>/dev/null; then
        [ -t 0 ] && sudo -v || return 1
    fi
    SETUP_AS_ROOT=(sudo -n)
}

# setup_fault MESSAGE: a failure of the run, which continues if SETUP_FAULTS names a file for such lines.
setup_fault() {
    [ -n "${SETUP_FAULTS:-}" ] || setup_fail "$1"
    setup_say "error: $1"
    printf '%s\n' "$1" >>"$SETUP_FAULTS"
}

# The server lies in /usr/sbin, which is not in everybody's PATH; cargo often only in the home directory.
setup_paths() {
    # A server takes no preloaded library from such a path, and apt no key.
    case $PWD in *[[:space:]:]*) setup_fail "the path of this tree has a blank or a colon: $PWD; move it" ;; esac
    : "${HOME:=$(getent passwd "$(id -u)" | cut -d : -f 6)}"
    export HOME
    PATH="$PATH:/usr/sbin:/usr/local/sbin:${CARGO_HOME:-$HOME/.cargo}/bin"
    export PATH
}

# setup_packages NEEDS...: installs the packages of the programs that are missing.
setup_packages() {
    local need program package missing=""
    # shellcheck disable=SC2048 # lists of words
    for need in $*; do
        program=${need%%:*}
        package=${need#*:}
        if ! command -v "$program" >/dev/null 2>&1; then
            case " $missing " in *" $package "*) ;; *) missing="$missing $package" ;; esac
        fi
    done
    # A compiler without the C library's headers and start files cannot link.
    if [ ! -e /usr/include/stdio.h ]; then missing="$missing libc6-dev"; fi
    if [ ! -e /etc/ssl/certs/ca-certificates.crt ]; then missing="$missing ca-certificates"; fi
    missing=${missing# }
    if [ -z "$missing" ]; then return 0; fi

    command -v apt-get >/dev/null 2>&1 ||
        setup_fail "missing: $missing; there is no apt-get here, install these (Debian names) by hand"
    setup_as_root ||
        setup_fail "missing: $missing; sudo does not work here without a password, so run first:" \
            "sudo apt-get install --no-install-recommends $missing"
    setup_say "Installing with apt-get: $missing"
    # Root runs timeout, because this user may not end what sudo starts.
    local limited=(timeout --foreground --kill-after=10 "$SETUP_APT_LIMIT")
    "${SETUP_AS_ROOT[@]}" "${limited[@]}" apt-get update -qq </dev/null || setup_fail "apt-get update failed"
    # shellcheck disable=SC2086 # the list is meant to be split
    "${SETUP_AS_ROOT[@]}" "${limited[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends $missing </dev/null >/dev/null ||
        setup_fail "apt-get install $missing failed, or took longer than $SETUP_APT_LIMIT s"
}

# Tests know what 10.11 does; SETUP_SERVER_SERIES names the series that will do for something else.
setup_server_version() {
    local version series
    version=$(mariadbd --no-defaults --version) || setup_fail "mariadbd --version failed"
    for series in ${SETUP_SERVER_SERIES:-10.11}; do
        case "$version" in *" $series."*) return 0 ;; esac
    done
    setup_fail "this wants MariaDB ${SETUP_SERVER_SERIES:-10.11} as this system's server (Debian 12 and Ubuntu 24.04" \
        "have 10.11), found: $version"
}

# version_at_least HAVE WANT
setup_version_at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# setup_rust_version [TOOLCHAIN]: the version of cargo there, or of the one in force; nothing if there is none. It
# installs nothing, as rustup would for rust-toolchain.toml.
setup_rust_version() {
    if [ $# -eq 0 ]; then
        RUSTUP_AUTO_INSTALL=0 cargo --version 2>/dev/null | cut -d ' ' -f 2
    else
        RUSTUP_AUTO_INSTALL=0 rustup run "$1" cargo --version 2>/dev/null | cut -d ' ' -f 2
    fi
}

# The version that rust-toolchain.toml names, or, where it cannot be had, another one that is not too old, and a note.
setup_rust() {
    local pinned want have name
    pinned=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml)
    want=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)
    have=$(setup_rust_version || true)
    if [ "$have" = "$pinned" ]; then return 0; fi
    if command -v rustup >/dev/null 2>&1 && [ -z "${RUSTUP_TOOLCHAIN:-}" ]; then
        # It may be there under another name, such as stable.
        for name in $(rustup toolchain list | cut -d ' ' -f 1 | grep -v '^no$'); do
            if [ "$(setup_rust_version "$name" || true)" = "$pinned" ]; then
                export RUSTUP_TOOLCHAIN=$name
                return 0
            fi
        done
        setup_say "Installing Rust $pinned with rustup"
        if setup_timeout_in_front "$SETUP_RUST_LIMIT" rustup toolchain install "$pinned" --profile minimal --component rustfmt,clippy; then return 0; fi
        # Without this, rustup would look for it again with each command.
        RUSTUP_TOOLCHAIN=$(cd / && rustup show active-toolchain 2>/dev/null | cut -d ' ' -f 1)
        export RUSTUP_TOOLCHAIN
        have=$(setup_rust_version || true)
    elif [ -z "$have" ] || ! setup_version_at_least "$have" "$want"; then
        setup_say "Rust ${have:-(none)} is older than $want: installing $pinned with rustup into ${CARGO_HOME:-$HOME/.cargo}"
        curl --proto '=https' --tlsv1.2 --max-time 120 -sSf https://sh.rustup.rs |
            setup_timeout_in_front "$SETUP_RUST_LIMIT" sh -s -- -y --profile minimal --component rustfmt,clippy --default-toolchain "$pinned" --no-modify-path ||
            setup_fail "rustup could not be installed"
        # Before any older cargo elsewhere.
        PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
        export PATH
        have=$(setup_rust_version || true)
    fi
    [ -n "$have" ] && setup_version_at_least "$have" "$want" || setup_fail "cargo is ${have:-missing}, $want is needed"
    [ "$have" = "$pinned" ] ||
        setup_say "note: this is Rust $have; format and linter are those of $pinned, and may say other things here"
}

# setup_component NAME COMMAND: makes `cargo COMMAND` available, or fails.
setup_component() {
    if cargo "$2" --version >/dev/null 2>&1; then return 0; fi
    command -v rustup >/dev/null 2>&1 || return 1
    setup_say "Installing the Rust component $1"
    setup_timeout_in_front "$SETUP_RUST_LIMIT" rustup component add "$1"
}

# setup_build [OPTION...]: builds what these options of cargo select, or the whole workspace as ./test does.
setup_build() {
    [ $# -gt 0 ] || set -- --workspace --features experimental-devices
    setup_say "Building (release)"
    cargo build --release --locked "$@" || setup_fail "the build failed"
}

# For the tests that record block writes. Nothing mounts it on a machine without systemd; where it cannot be mounted
# they are left out, and say why.
setup_tracefs() {
    if [ "$(id -u)" -ne 0 ] || [ ! -d /sys/kernel/tracing ] || [ -e /sys/kernel/tracing/instances ]; then return 0; fi
    setup_say "Mounting tracefs on /sys/kernel/tracing"
    mount -t tracefs tracefs /sys/kernel/tracing || setup_say "note: it could not be mounted"
}

# Other stock servers for the tests, each in target/NAME. A server whose release is gone from the archive is left out with
# its tests, which say why. Any other reason is a fault, unless SETUP_GO_ON_WITHOUT is set.
setup_servers() {
    setup_fetched mysql-9.7 REDOUBT_MYSQL_9_7
    setup_fetched mariadb-11.4 REDOUBT_MARIADB_11_4
    setup_fetched mariadb-11.8 REDOUBT_MARIADB_11_8
}

# setup_fetched NAME VARIABLE: a folder that VARIABLE names is used instead; VARIABLE_MISSING says why there is none.
setup_fetched() {
    local name=$1 variable=$2 log=target/fetch-$1.log status=0 why
    if [ -n "${!variable:-}" ]; then
        [ -d "${!variable}" ] || setup_fault "$variable=${!variable} is no directory"
        return 0
    fi
    mkdir -p target
    setup_timeout 600 scripts/fetch-server "$name" 2>"$log" || status=$?
    if [ "$status" -eq 124 ]; then echo "error: it took longer than 10 minutes" >>"$log"; fi
    if [ "$status" -eq 0 ]; then
        tail -n 1 "$log" >&2
        return 0
    fi
    why=$(sed -n 's/^error: //p' "$log" | tail -n 1)
    export "${variable}_MISSING=$why"
    setup_say "SKIP the tests with $name: $why"
    # 4: the release is gone.
    if [ "$status" -eq 4 ] || [ -n "${SETUP_GO_ON_WITHOUT:-}" ]; then return 0; fi
    setup_fault "$name could not be fetched: $why (see $log; ./test --without-missing-servers goes on without it)"
}

# A headless browser for the tests of the status page. Without one they are skipped, with a message.
setup_browser() {
    local name
    for name in chromium chromium-browser google-chrome; do
        if command -v "$name" >/dev/null 2>&1; then return 0; fi
    done
    if ! setup_as_root; then
        setup_say "SKIP the tests with a browser: sudo does not work here without a password, so run first:" \
            "sudo apt-get install --no-install-recommends chromium"
        return 0
    fi
    setup_say "Installing with apt-get: chromium"
    # Root runs timeout, because this user may not end what sudo starts.
    if ! "${SETUP_AS_ROOT[@]}" timeout --kill-after=10 600 env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends chromium </dev/null >/dev/null 2>&1; then
        setup_say "SKIP the tests with a browser: apt-get install chromium failed"
    fi
}

# A Prometheus for the test of the dashboard. Unpacked into target/prometheus instead of installed, so that no service
# starts.
setup_prometheus() {
    if [ -n "${REDOUBT_PROMETHEUS:-}" ]; then
        [ -d "$REDOUBT_PROMETHEUS" ] || setup_fault "REDOUBT_PROMETHEUS=$REDOUBT_PROMETHEUS is no directory"
        return 0
    fi
    local directory=target/prometheus
    if [ ! -x "$directory/usr/bin/promtool" ]; then
        if command -v prometheus >/dev/null 2>&1; then return 0; fi
        setup_say "Fetching the package prometheus with apt-get into $directory"
        mkdir -p "$directory"
        if ! (cd "$directory" && rm -f prometheus_*.deb && setup_timeout 300 apt-get download -qq prometheus >/dev/null 2>&1 && dpkg -x prometheus_*.deb .); then
            setup_say "SKIP the test with Prometheus: apt-get download prometheus failed"
            return 0
        fi
    fi
    REDOUBT_PROMETHEUS=$PWD/$directory/usr/bin
    export REDOUBT_PROMETHEUS
}

# Plugins of the server that tests need: key management for encrypted tables, compression for page_compressed ones. They
# are in packages with services or of their own; unpacked into target/mariadb-server, so that none starts. A server loads
# only plugins of its own version, so those of another one are fetched again.
REDOUBT_PLUGINS="file_key_management:mariadb-server debug_key_management:mariadb-test \
    provider_lz4:mariadb-plugin-provider-lz4"

setup_plugins() {
    if [ -n "${REDOUBT_SERVER_PLUGINS:-}" ]; then return 0; fi
    local plugin name package version directory=target/mariadb-server
    version=$(mariadbd --no-defaults --version)
    if [ "$(cat "$directory/version" 2>/dev/null)" != "$version" ]; then
        rm -rf "$directory"
        mkdir -p "$directory"
        printf '%s\n' "$version" >"$directory/version"
    fi
    for plugin in $REDOUBT_PLUGINS; do
        name=${plugin%%:*}.so
        package=${plugin#*:}
        if [ -e "/usr/lib/mysql/plugin/$name" ] || [ -e "$directory/usr/lib/mysql/plugin/$name" ]; then continue; fi
        setup_say "Fetching the package $package with apt-get into $directory"
        # Package lists may be missing, or older than what the mirror has.
        (cd "$directory" && rm -f "$package"_*.deb && { setup_timeout 300 apt-get download -qq "$package" ||
            { setup_as_root && setup_timeout 300 "${SETUP_AS_ROOT[@]}" apt-get update -qq && setup_timeout 300 apt-get download -qq "$package"; }; } >/dev/null 2>&1 &&
            dpkg -x "$package"_*.deb .) ||
            setup_fault "apt-get download $package failed; set REDOUBT_SERVER_PLUGINS to the directory with $name"
        rm -f "$directory/$package"_*.deb
    done
}

# Everything that a build and the tests need, and the build.
setup_all() {
    setup_paths
    setup_packages "$REDOUBT_BUILD_NEEDS" "$REDOUBT_SERVER_NEEDS" "$REDOUBT_TEST_NEEDS"
    setup_server_version
    setup_rust
    setup_build
}

# setup_demo [OPTION...]: what ./demo needs, and the build of what these options of cargo select, or of what ./demo runs.
setup_demo() {
    local options=("$@")
    [ $# -gt 0 ] || read -ra options < <(sed -n 's/^DEMO = //p' Makefile) || setup_fail "no DEMO in the Makefile"
    setup_paths
    setup_packages "$REDOUBT_BUILD_NEEDS" "$REDOUBT_SERVER_NEEDS"
    setup_server_version
    setup_rust
    # Without line tables, which take a tenth of the time.
    CARGO_PROFILE_RELEASE_DEBUG=false setup_build "${options[@]}"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    set -eu
    cd "$(dirname "$0")/.."
    setup_all
    setup_plugins
fi
