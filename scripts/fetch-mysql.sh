#!/usr/bin/env bash
# Fetches a stock MySQL 9.7 server into a folder of its own. Nothing is installed on the machine.
#
#   scripts/fetch-mysql.sh [DIR]          DIR: target/mysql
#
# Debian has MySQL 9.7 only in its unstable release, and that needs a newer C library than Debian 12 has. So all
# packages it depends on, the C library included, are taken from there too (about 75 packages, 75 MB; 450 MB
# unpacked), and the server is started with that loader and those libraries. Made for amd64 and arm64.
#
# The Debian mirror is the one this machine's own apt uses; signatures are checked as apt always does. Where apt
# has no Debian source (another distribution), name a mirror: REDOUBT_DEBIAN_MIRROR=URL.
#
# Result: DIR/bin/mysqld and DIR/bin/mysql, which take the usual options. A folder that is complete is left as it
# is. Exit status: 0 it is there, 3 the packages cannot be fetched (no network, no mirror), 1 anything else.
set -euo pipefail

MAJOR=9.7
PACKAGES="mysql-server-core mysql-client-core libc-bin base-passwd dash coreutils bash"

say() { printf '%s\n' "$*" >&2; }
fail() {
    say "error: $*"
    exit 1
}
unreachable() {
    say "error: $*"
    exit 3
}

case "${1:-}" in
-h | --help)
    sed -n '2,/^set /p' "$0" | sed -n 's/^# \{0,1\}//p'
    exit 0
    ;;
-*) fail "unknown option: $1 (try --help)" ;;
esac
[ $# -le 1 ] || fail "one folder at most (try --help)"

DIR=${1:-"$(dirname "$0")/../target/mysql"}
mkdir -p "$DIR" || fail "$DIR cannot be made"
DIR=$(cd "$DIR" && pwd -P)

version_there() {
    if [ -x "$DIR/bin/mysqld" ]; then "$DIR/bin/mysqld" --no-defaults --version 2>/dev/null || true; fi
}

case "$(version_there)" in
*"Ver $MAJOR."*)
    say "MySQL is there already: $(version_there)"
    exit 0
    ;;
esac

# One at a time: two test runs may want it.
exec 9>"$DIR/.lock"
if command -v flock >/dev/null 2>&1; then flock 9; fi
case "$(version_there)" in *"Ver $MAJOR."*) exit 0 ;; esac

for program in apt-get dpkg dpkg-deb; do
    command -v "$program" >/dev/null 2>&1 ||
        unreachable "MySQL $MAJOR is taken from Debian packages and there is no $program here"
done

# The loader's name and the library folder, by architecture.
case "$(dpkg --print-architecture)" in
amd64) LOADER=usr/lib64/ld-linux-x86-64.so.2 LIBRARIES=usr/lib/x86_64-linux-gnu ;;
arm64) LOADER=usr/lib/ld-linux-aarch64.so.1 LIBRARIES=usr/lib/aarch64-linux-gnu ;;
*) unreachable "MySQL $MAJOR is fetched for amd64 and arm64 only, this is $(dpkg --print-architecture)" ;;
esac

# The machine's own Debian mirror: the first archive that is not the security one.
mirror=${REDOUBT_DEBIAN_MIRROR:-}
if [ -z "$mirror" ]; then
    mirror=$(apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 'Identifier: Packages' 2>/dev/null |
        awk -F '|' '$1 == "Debian" && $2 == "Debian" { print $3; exit }')
fi
if [ -z "$mirror" ]; then
    # Before the first `apt-get update` apt knows the addresses but not whose they are.
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 2>/dev/null |
        grep -E '/debian/?$' | head -n 1 || true)
fi
[ -n "$mirror" ] || unreachable "this machine's apt has no Debian mirror; name one in REDOUBT_DEBIAN_MIRROR"

signed_by=""
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
if [ -e "$keyring" ]; then signed_by="[signed-by=$keyring] "; fi

# An apt of its own: own sources, own lists, and a package state in which nothing is installed, so that every
# dependency is fetched. Network settings and credentials stay the machine's.
A="$DIR/apt"
mkdir -p "$A/lists/partial" "$A/cache" "$A/archives/partial"
: >"$A/status"
printf 'deb %s%s sid main\n' "$signed_by" "$mirror" >"$A/sources.list"
cat >"$A/apt.conf" <<CONF
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
Dir::Etc::sourcelist "$A/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State::Lists "$A/lists";
Dir::State::status "$A/status";
Dir::State::extended_states "$A/extended_states";
Dir::Cache "$A/cache";
Dir::Cache::archives "$A/archives";
Acquire::Languages "none";
Acquire::Retries "3";
APT::Install-Recommends "0";
Debug::NoLocking "1";
CONF
# apt gives up its rights while it downloads, and then may not be able to write here.
if [ "$(id -u)" -eq 0 ]; then echo 'APT::Sandbox::User "root";' >>"$A/apt.conf"; fi

say "Fetching MySQL $MAJOR from $mirror (sid) into $DIR"
say "  package lists"
apt-get -c "$A/apt.conf" -qq update >"$A/update.log" 2>&1 ||
    unreachable "apt-get update failed: $(grep -E '^[EW]:' "$A/update.log" | head -n 3 | tr '\n' ' ')"
found=$(apt-cache -c "$A/apt.conf" show mysql-server-core 2>/dev/null | sed -n 's/^Version: //p' | head -n 1 || true)
case "$found" in
"$MAJOR".*) ;;
"") unreachable "the mirror's package lists could not be read: $(grep -E '^[EW]:' "$A/update.log" | head -n 1)" ;;
*) unreachable "the mirror's unstable release has MySQL $found, not $MAJOR" ;;
esac
say "  packages of version $found and what they depend on"
# shellcheck disable=SC2086 # the list is meant to be split
apt-get -c "$A/apt.conf" -qq -d -y install $PACKAGES >"$A/install.log" 2>&1 ||
    unreachable "apt-get could not fetch the packages: $(grep -E '^E:' "$A/install.log" | head -n 3 | tr '\n' ' ')"

say "  unpacking $(find "$A/archives" -maxdepth 1 -name '*.deb' | wc -l) packages"
rm -rf "$DIR/root.new"
mkdir "$DIR/root.new"
for package in "$A/archives"/*.deb; do
    dpkg-deb -x "$package" "$DIR/root.new" || fail "$package cannot be unpacked; remove $A and try again"
done
[ -x "$DIR/root.new/$LOADER" ] || fail "the packages hold no loader $LOADER"
[ -x "$DIR/root.new/usr/sbin/mysqld" ] || fail "the packages hold no usr/sbin/mysqld"
rm -rf "$DIR/root"
mv "$DIR/root.new" "$DIR/root"
rm -rf "$A/archives" "$A/cache" "$A/lists"

# The folder may be moved: the scripts find everything from where they lie.
mkdir -p "$DIR/bin"
cat >"$DIR/bin/mysqld" <<SCRIPT
#!/bin/sh
# Stock mysqld with the libraries it was built for. Written by fetch-mysql.sh.
here=\$(dirname "\$(readlink -f "\$0")")
root=\$(readlink -f "\$here/../root")
# Options that choose option files must stay in front.
first=
case "\${1:-}" in --no-defaults | --print-defaults | --defaults-*)
    first=\$1
    shift
    ;;
esac
exec "\$root/$LOADER" --library-path "\$root/$LIBRARIES" "\$root/usr/sbin/mysqld" \${first:+"\$first"} \\
    --basedir="\$root/usr" --lc-messages-dir="\$root/usr/share/mysql" --plugin-dir="\$root/usr/lib/mysql/plugin" \\
    --character-sets-dir="\$root/usr/share/mysql/charsets" --secure-file-priv=NULL "\$@"
SCRIPT
cat >"$DIR/bin/mysql" <<SCRIPT
#!/bin/sh
# Stock mysql client with the libraries it was built for. Written by fetch-mysql.sh.
here=\$(dirname "\$(readlink -f "\$0")")
root=\$(readlink -f "\$here/../root")
exec "\$root/$LOADER" --library-path "\$root/$LIBRARIES" "\$root/usr/bin/mysql" "\$@"
SCRIPT
chmod 755 "$DIR/bin/mysqld" "$DIR/bin/mysql"

case "$(version_there)" in
*"Ver $MAJOR."*) say "MySQL is there: $(version_there)" ;;
*) fail "the server that was fetched does not run: $("$DIR/bin/mysqld" --no-defaults --version 2>&1 | head -n 3)" ;;
esac
