# shellcheck shell=bash
# Fetches QEMU, a kernel and the guest's tools as Debian packages and unpacks them below $GUEST_DIR. Sourced by
# ./host.sh. $KERNEL_SUITE is the Debian suite of the guest's kernel.
#
# Nothing is installed: every step has an apt configuration of its own (sources, lists, cache, an empty package
# status), so that apt neither reads nor changes what the machine has. The mirror, proxies and credentials are
# those of the machine's own apt configuration; signatures are checked with the Debian keyring. There are two
# such configurations, which never see each other: one for programs that run here, one for the guest's kernel.
#
#   $GUEST_DIR/host/apt, host/root        QEMU, busybox, e2fsprogs, kmod with all their libraries
#   $GUEST_DIR/kernel/apt, kernel/root    the kernel and its modules

HOST_SUITES="bookworm bookworm-backports"
HOST_PACKAGES="qemu-system-x86 busybox-static e2fsprogs kmod"
APT_LIMIT_S=600
DEBIAN_KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# The address of the Debian archive that this machine uses, from its own apt configuration.
debian_mirror() {
    local uri
    uri=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(COMPONENT) $(CODENAME)' 'Created-By: Packages' |
        awk '$2 == "Debian" && $3 == "main" && $4 !~ /-security/ { print $1; exit }')
    [ -n "$uri" ] || fail "apt knows no Debian archive here (apt-get indextargets shows none of origin Debian);" \
        "add a Debian source and run apt-get update"
    printf '%s\n' "$uri"
}

# apt_configure DIR SUITE...: writes DIR/apt, a configuration that knows only these suites.
apt_configure() {
    local dir=$1 suite mirror
    shift
    mirror=$(debian_mirror)
    [ -r "$DEBIAN_KEYRING" ] || fail "no $DEBIAN_KEYRING: install debian-archive-keyring"
    mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial" "$dir/apt/empty"
    : >"$dir/apt/status"
    for suite in "$@"; do
        printf 'deb [signed-by=%s] %s %s main\n' "$DEBIAN_KEYRING" "$mirror" "$suite"
    done >"$dir/apt/sources.list"
    # The machine's own files are replaced as a whole, because they may hold hooks that act on the machine; how
    # to reach a mirror (proxies, time limits) is taken over from them.
    {
        apt-config dump | grep '^Acquire::' | grep -vE '^Acquire::(IndexTargets|Allow|Languages)' || true
        cat <<CONF
Acquire::Languages "none";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowWeakRepositories "false";
Acquire::AllowDowngradeToInsecureRepositories "false";
APT::Get::AllowUnauthenticated "false";
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "$(id -un)";
Dir::Etc::main "/dev/null";
Dir::Etc::parts "$dir/apt/empty";
Dir::Etc::sourcelist "$dir/apt/sources.list";
Dir::Etc::sourceparts "$dir/apt/empty";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "$dir/apt/empty";
Dir::Etc::netrc "/etc/apt/auth.conf";
Dir::Etc::netrcparts "/etc/apt/auth.conf.d";
Dir::State "$dir/apt";
Dir::State::lists "$dir/apt/lists";
Dir::State::status "$dir/apt/status";
Dir::State::extended_states "$dir/apt/extended_states";
Dir::Cache "$dir/apt/cache";
Dir::Log "$dir/apt";
CONF
    } >"$dir/apt/apt.conf"
}

# private_apt DIR COMMAND...: an apt command in DIR's configuration.
private_apt() {
    local dir=$1
    shift
    APT_CONFIG="$dir/apt/apt.conf" timeout "$APT_LIMIT_S" "$@" >>"$LOG" 2>&1 ||
        fail "'$*' failed or took more than $APT_LIMIT_S s; its messages are at the end of $LOG"
}

# unpack DIR PACKAGE_FILE...: unpacks into DIR/root; the stamp says that this was completed, and with what.
unpack() {
    local dir=$1 file
    shift
    rm -rf "$dir/root" "$dir/stamp"
    mkdir -p "$dir/root"
    for file in "$@"; do
        dpkg-deb -x "$file" "$dir/root" || fail "$file could not be unpacked"
    done
    printf '%s\n' "${@##*/}" >"$dir/stamp.new"
    mv "$dir/stamp.new" "$dir/stamp"
}

fetch_host_packages() {
    local dir=$GUEST_DIR/host
    if [ -e "$dir/stamp" ]; then return 0; fi
    say "fetching $HOST_PACKAGES ($HOST_SUITES)"
    # shellcheck disable=SC2086 # the lists are meant to be split
    {
        apt_configure "$dir" $HOST_SUITES
        private_apt "$dir" apt-get update -q
        private_apt "$dir" apt-get install -q -y --download-only -t "${HOST_SUITES##* }" $HOST_PACKAGES
    }
    unpack "$dir" "$dir"/apt/cache/archives/*.deb
}

fetch_kernel_packages() {
    local dir=$GUEST_DIR/kernel names
    if [ -e "$dir/stamp" ] && [ "$(cat "$dir/suite" 2>/dev/null)" = "$KERNEL_SUITE" ]; then return 0; fi
    say "fetching a kernel ($KERNEL_SUITE)"
    # Backports are complete only with the suite that they are for.
    if [ "${KERNEL_SUITE%-backports}" = "$KERNEL_SUITE" ]; then
        apt_configure "$dir" "$KERNEL_SUITE"
    else
        apt_configure "$dir" "${KERNEL_SUITE%-backports}" "$KERNEL_SUITE"
    fi
    private_apt "$dir" apt-get update -q
    # The packages that linux-image-amd64 needs, less the tools for booting a real machine. Kernel and modules are in
    # one package or in two, depending on the suite; so all that carry a version in their name are taken.
    names=$(APT_CONFIG="$dir/apt/apt.conf" apt-get install -s -t "$KERNEL_SUITE" linux-image-amd64 2>>"$LOG" |
        awk '$1 == "Inst" && $2 ~ /^linux-(image|binary|modules)-[0-9]/ { print $2 }')
    [ -n "$names" ] || fail "$KERNEL_SUITE has no kernel package that linux-image-amd64 leads to; see $LOG"
    rm -f "$dir"/*.deb
    # shellcheck disable=SC2086 # the list is meant to be split
    (cd "$dir" && private_apt "$dir" apt-get download -q $names) || exit 1
    unpack "$dir" "$dir"/*.deb
    rm -f "$dir"/*.deb
    printf '%s\n' "$KERNEL_SUITE" >"$dir/suite"
}

fetch_packages() {
    local need
    for need in apt-get apt-config dpkg-deb dpkg; do
        command -v "$need" >/dev/null 2>&1 || fail "no $need here: this needs Debian or a system derived from it"
    done
    [ "$(dpkg --print-architecture)" = amd64 ] || fail "this machine is not amd64; the guest runs its mariadbd"
    fetch_host_packages
    fetch_kernel_packages
}

# Runs a program of the private folder with its own loader and libraries: private_program NAME PATH ARGUMENT...
# NAME is what the program sees as its name; replaces the calling shell.
private_program() {
    local root=$GUEST_DIR/host/root name=$1 program=$2
    shift 2
    exec "$root/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" --argv0 "$name" \
        --library-path "$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu" "$root$program" "$@"
}
