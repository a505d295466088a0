# shellcheck shell=bash
# In the guest, as a service of its systemd: installs the packages, puts mariadb.service on a volume, and goes through
# kills, an upgrade, removal and purge while a client writes rows. Lines for the host: see scripts/guest/guest/init.
set -u
stty -F /dev/ttyS1 raw -echo
exec 3>/dev/ttyS1
usleep() { sleep 0.2; }
# shellcheck source=scripts/guest/guest/common.sh
. /payload/common.sh

ACKS=/run/acks
DATA=/var/lib/redoubt
DROP_IN=mariadb.service.d/redoubt.conf
# Under emulation, on a busy machine.
SLOW_S=400

# Ends the test as failed, with the services' logs.
stop() {
    local name=$1
    shift
    say "FAILED: $name: $*"
    journalctl --no-pager --boot --lines 120 --quiet
    systemctl --no-pager --failed
    result "CHECK $name FAILED $*"
    power_off
}

pid_of() { systemctl show --property MainPID --value "$1"; }
is_active() { [ "$(systemctl is-active "$1")" = active ]; }
# True when the unit runs, in another process than $2.
runs_anew() { is_active "$1" && [ "$(pid_of "$1")" != "$2" ]; }
restarts() { systemctl show --property NRestarts --value "$1"; }
server_answers() { is_active mariadb && mariadb -e 'SELECT 1' >/dev/null 2>&1; }
state_of() { dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null || echo none; }
version_of() { dpkg-query -W -f '${Version}' "$1"; }
has_library() { grep -q '/usr/lib/redoubt/libredoubt\.so' "/proc/$(pid_of mariadb)/maps"; }
has_old_library() { grep -q '/usr/lib/redoubt/libredoubt\.so (deleted)' "/proc/$(pid_of mariadb)/maps"; }
attached() { redoubt volume list | awk '$1 == "main" && $2 == "attached" { n++ } END { exit !n }'; }

# apt NAME ARGUMENT...: apt-get with these arguments, what it says in /run/NAME.log and on the console; its status.
apt() {
    local name=$1 status=0
    shift
    apt-get -q -y "$@" >"/run/$name.log" 2>&1 || status=$?
    cat "/run/$name.log"
    return "$status"
}

# refused NAME WORDS ARGUMENT...: apt-get must fail and say WORDS.
refused() {
    local name=$1 words=$2
    shift 2
    if apt "$name" "$@"; then return 1; fi
    grep -q "$words" "/run/$name.log"
}

# Rows with numbers from 1 on without a gap; a number is acknowledged when the client has read the answer to its commit,
# and only then sends what makes it a line in $ACKS. After a failure it continues after the last number in the table.
writer() {
    local next
    while [ ! -e /run/stop-writer ]; do
        if next=$(mariadb -N -e 'SELECT COALESCE(MAX(number), 0) + 1 FROM proof.ledger' 2>>/run/writer.log); then
            seq "$next" $((next + 99)) | awk '{
                print "INSERT INTO ledger VALUES (" $1 ", SHA2(" $1 ", 256)); SELECT " $1 ";" }' |
                mariadb --batch --skip-column-names --unbuffered proof >>"$ACKS" 2>>/run/writer.log
        fi
    done
}

acknowledged() { wc -l <"$ACKS"; }
more_than() { [ "$(acknowledged)" -gt "$1" ]; }

start_writer() {
    rm -f /run/stop-writer
    writer 3>&- &
    writer=$!
}

stop_writer() {
    : >/run/stop-writer
    wait "$writer"
}

# Rows have been written since there were $1, and each acknowledged one is there and whole.
rows_are_there() {
    local missing
    wait_until $SLOW_S more_than $(($1 + 20)) || return 1
    # First what must be there, then what is.
    sort "$ACKS" >/run/wanted
    mariadb -N -e 'SELECT number FROM proof.ledger WHERE payload = SHA2(number, 256)' | sort >/run/found
    missing=$(comm -23 /run/wanted /run/found | wc -l)
    say "$(wc -l </run/wanted) rows acknowledged, $(wc -l </run/found) found, $missing missing"
    [ "$missing" = 0 ] && [ "$(wc -l </run/found)" -ge "$(wc -l </run/wanted)" ]
}

# The check above can fail: a number that was never committed is missing.
lost_row_is_seen() {
    cp "$ACKS" /run/acks-and-one
    echo 0 >>/run/acks-and-one
    if ACKS=/run/acks-and-one rows_are_there 0; then return 1; fi
    [ "$(comm -23 /run/wanted /run/found)" = 0 ]
}

tables_are_sound() {
    mariadb -N -e 'CHECK TABLE proof.ledger EXTENDED' >/run/check-table && cat /run/check-table &&
        awk '$NF == "OK" { ok++ } END { exit !(ok == 1 && NR == 1) }' /run/check-table
}

systemd_is_up() {
    case "$(systemctl is-system-running)" in running | degraded) ;; *) return 1 ;; esac
    systemctl --no-pager --failed
    [ "$(cat /proc/1/comm)" = systemd ]
}

# Nothing listens before the administrator has set where.
installed_files() {
    local file
    for file in /usr/bin/redoubt /usr/lib/redoubt/libredoubt.so /usr/lib/redoubt/libredoubt_group.so \
        /usr/lib/redoubt/libredoubt_net.so \
        /usr/share/man/man1/redoubt-run.1.gz \
        /usr/share/bash-completion/completions/redoubt /usr/share/zsh/vendor-completions/_redoubt \
        /usr/share/fish/vendor_completions.d/redoubt.fish /lib/systemd/system/redoubt-node.service \
        /etc/redoubt/node.conf /etc/redoubt/mariadb.conf; do
        [ -f "$file" ] || { say "no $file"; return 1; }
    done
    [ "$(redoubt --version)" = "redoubt ${VERSION%%~*}" ] && getent passwd redoubt &&
        dpkg-query -W -f '${Conffiles}' redoubt-node | grep -q /etc/redoubt/node.conf &&
        dpkg-query -W -f '${Conffiles}' redoubt | grep -q /etc/redoubt/mariadb.conf &&
        ! systemctl is-enabled --quiet redoubt-node && ! is_active redoubt-node
}

node_is_its_users() {
    is_active redoubt-node && [ "$(stat -c %U "/proc/$(pid_of redoubt-node)")" = redoubt ] &&
        [ "$(stat -c '%U %a' $DATA)" = "redoubt 700" ]
}

first_start() {
    # As docs/install.md says.
    systemctl stop mariadb.socket mariadb || return 1
    redoubt volume import main --from /var/lib/mysql || return 1
    mkdir -p /etc/systemd/system/mariadb.service.d
    cp /usr/share/doc/redoubt/packaging/systemd/$DROP_IN /etc/systemd/system/mariadb.service.d/
    systemctl daemon-reload && systemctl start mariadb && server_answers && has_library && attached
}

kill_node() {
    local process
    process=$(pid_of redoubt-node)
    kill -KILL "$process" && wait_until $SLOW_S runs_anew redoubt-node "$process" && [ "$(restarts redoubt-node)" = 1 ]
}

kill_server() {
    local process
    process=$(pid_of mariadb)
    kill -KILL "$process" && wait_until $SLOW_S runs_anew mariadb "$process" && wait_until $SLOW_S server_answers &&
        [ "$(restarts mariadb)" = 1 ]
}

# The node's process is another one afterwards, the server's is the same, with the library of before.
upgrade() {
    local node server
    node=$(pid_of redoubt-node)
    server=$(pid_of mariadb)
    apt upgrade install /payload/new/*.deb || return 1
    [ "$(version_of redoubt)" = "$NEW_VERSION" ] && [ "$(version_of redoubt-node)" = "$NEW_VERSION" ] &&
        runs_anew redoubt-node "$node" && [ "$(pid_of mariadb)" = "$server" ] && has_old_library &&
        cmp /etc/redoubt/node.conf /run/node.conf && systemctl is-enabled --quiet redoubt-node
}

# The programs that the command starts, and its error without them.
tools() {
    redoubt bench --version | grep -q "redoubt-bench ${NEW_VERSION%%~*}" && redoubt group drill --help >/dev/null &&
        apt remove-tools remove redoubt-tools && [ "$(state_of redoubt)" = installed ] &&
        ! redoubt bench --version 2>/run/no-tools && grep -q 'Debian package redoubt-tools' /run/no-tools
}

# refused_by WORDS COMMAND...: the command must fail, and name WORDS and the package with experimental device code.
refused_by() {
    local words=$1
    shift
    if "$@" >/run/experimental.log 2>&1; then return 1; fi
    cat /run/experimental.log
    grep -q -e "$words" /run/experimental.log && grep -q 'package redoubt-experimental' /run/experimental.log
}

# Command, node and library of the default package, while the other one is installed, too.
default_refuses() {
    refused_by '--local-log' redoubt run --local-log --pretend-pmem -- /usr/sbin/mariadbd --datadir=/var/lib/mysql &&
        refused_by '--local-log' redoubt doctor --local-log -- /usr/sbin/mariadbd &&
        refused_by /dev/vda redoubt device show /dev/vda &&
        refused_by '--pretend-pmem' redoubt node --data /run/no-node --listen 127.0.0.1:0 --pretend-pmem &&
        refused_by /dev/vda redoubt node --data /run/no-node --listen 127.0.0.1:0 --log-path /dev/vda &&
        refused_by REDOUBT_LOCAL_LOG env REDOUBT_LOCAL_LOG=map-sync LD_PRELOAD=/usr/lib/redoubt/libredoubt.so \
            /usr/sbin/mariadbd --version
}

EXPERIMENTAL=/dev/shm/experimental
experimental_sql() { mariadb --no-defaults --socket=$EXPERIMENTAL/s --user=root --skip-column-names -e "$1"; }
experimental_answers() { experimental_sql 'SELECT 1' >/dev/null 2>&1; }
# A server without a node, its redo log on tmpfs as if that were persistent memory; its process is in $experimental.
start_experimental() {
    redoubt-experimental run --local-log --pretend-pmem -- /usr/sbin/mariadbd --no-defaults --user=mysql \
        --datadir=$EXPERIMENTAL --innodb-log-file-size=16M --skip-networking --socket=$EXPERIMENTAL/s \
        --pid-file=$EXPERIMENTAL/pid 3>&- &
    experimental=$!
    wait_until $SLOW_S experimental_answers &&
        grep -q '/usr/lib/redoubt/experimental/libredoubt\.so' "/proc/$experimental/maps"
}

# The package with experimental device code: a row survives a kill, a removal meanwhile is refused, a later one is not.
experimental() {
    [ "$(redoubt-experimental --version)" = "redoubt ${NEW_VERSION%%~*}" ] &&
        [ -e /usr/share/man/man1/redoubt-experimental.1.gz ] || return 1
    install -d -o mysql -g mysql -m 700 $EXPERIMENTAL
    # The guest's name cannot be looked up.
    mariadb-install-db --no-defaults --force --user=mysql --datadir=$EXPERIMENTAL --innodb-log-file-size=16M \
        --skip-test-db --auth-root-authentication-method=normal >/run/install-db.log 2>&1 || { cat /run/install-db.log; return 1; }
    start_experimental &&
        experimental_sql 'CREATE TABLE mysql.proof (number INT PRIMARY KEY) ENGINE=InnoDB; INSERT INTO mysql.proof VALUES (7)' &&
        redoubt-experimental status --local-log --datadir $EXPERIMENTAL &&
        refused remove-experimental 'redoubt-experimental is in use: process .*(mariadbd)' remove redoubt-experimental &&
        kill -KILL "$experimental" || return 1
    wait "$experimental"
    start_experimental && [ "$(experimental_sql 'SELECT number FROM mysql.proof')" = 7 ] &&
        kill -TERM "$experimental" && wait "$experimental" || return 1
    rm -r $EXPERIMENTAL
    apt remove-experimental remove redoubt-experimental && [ ! -e /usr/bin/redoubt-experimental ] &&
        [ ! -e /usr/lib/redoubt/experimental ] && [ "$(state_of redoubt)" = installed ]
}

# With the socket that systemd listens on for the server, as after a start of the host.
restart_server() {
    systemctl stop mariadb && systemctl start mariadb.socket && systemctl start mariadb &&
        wait_until $SLOW_S server_answers && has_library && ! has_old_library
}

remove_node_refused() {
    local node
    node=$(pid_of redoubt-node)
    refused remove-node 'redoubt-node is in use' remove redoubt-node &&
        [ "$(pid_of redoubt-node)" = "$node" ] && [ "$(state_of redoubt-node)" = installed ]
}

# A server whose node has been stopped waits; its library stays until it has been stopped, too.
remove_library_refused() {
    systemctl stop redoubt-node &&
        refused remove-redoubt 'redoubt is in use: process .*(mariadbd) has its library loaded' remove redoubt &&
        [ "$(state_of redoubt)" = installed ] && is_active mariadb && has_library
}

# The server has been waiting all the time.
install_again() {
    local server
    server=$(pid_of mariadb)
    apt install-again install /payload/new/*.deb && systemctl start redoubt-node &&
        wait_until $SLOW_S attached && [ "$(pid_of mariadb)" = "$server" ]
}

remove() {
    systemctl stop mariadb.socket mariadb && apt remove remove redoubt redoubt-node || return 1
    ! is_active redoubt-node && [ ! -e /usr/bin/redoubt ] && [ "$(state_of redoubt)" = config-files ] &&
        [ "$(state_of redoubt-node)" = config-files ] && cmp /etc/redoubt/node.conf /run/node.conf &&
        [ -d $DATA/volumes/main ]
}

purge() {
    apt purge purge redoubt redoubt-node || return 1
    grep -q 'The volumes are left in /var/lib/redoubt' /run/purge.log && [ ! -e /etc/redoubt ] &&
        [ "$(state_of redoubt)" = none ] && [ "$(state_of redoubt-node)" = none ] && [ -d $DATA/volumes/main ] &&
        [ -d /var/lib/redoubt-mariadb ]
}

# The drop-in is the administrator's. Without the package a server does not start, least of all on /var/lib/mysql.
no_start_without() { ! systemctl start mariadb && ! is_active mariadb; }

after_purge() {
    apt after-purge install /payload/new/*.deb && systemctl start redoubt-node &&
        systemctl start mariadb && wait_until $SLOW_S server_answers && has_library
}

VERSION=$(dpkg-deb -f /payload/before/redoubt_*.deb Version)
NEW_VERSION=$(dpkg-deb -f /payload/new/redoubt_*.deb Version)
say "packages $VERSION and $NEW_VERSION"
: >"$ACKS"
check systemd wait_until $SLOW_S systemd_is_up
check server-before wait_until $SLOW_S server_answers
check install apt install install /payload/before/*.deb
check installed-files installed_files
check unit systemd-analyze verify --man=no redoubt-node.service
check node-start systemctl start redoubt-node
check node-user node_is_its_users
check volume-create redoubt volume create spare
check server-start first_start
check drop-in systemd-analyze verify --man=no mariadb.service
mariadb -e 'CREATE DATABASE proof;
    CREATE TABLE proof.ledger (number INT PRIMARY KEY, payload CHAR(64)) ENGINE=InnoDB' ||
    stop tables "CREATE TABLE"
start_writer
check rows rows_are_there 0
check lost-row-is-seen lost_row_is_seen
before=$(acknowledged)
check kill-node kill_node
check rows-after-kill-node rows_are_there "$before"
before=$(acknowledged)
check kill-server kill_server
check rows-after-kill-server rows_are_there "$before"
# A setting of the administrator's, which the upgrade must leave; it is in force from the restart on.
echo 'REDOUBT_NODE_OPTIONS="--listen 127.0.0.1:7070 --status-listen 127.0.0.1:7071"' >>/etc/redoubt/node.conf
cp /etc/redoubt/node.conf /run/node.conf
systemctl enable redoubt-node || stop enable "systemctl enable"
before=$(acknowledged)
check upgrade upgrade
check settings-in-force grep -q status-listen "/proc/$(pid_of redoubt-node)/cmdline"
check rows-after-upgrade rows_are_there "$before"
check tools tools
check default-refuses default_refuses
check experimental experimental
before=$(acknowledged)
check new-library restart_server
check rows-after-new-library rows_are_there "$before"
check remove-node-refused remove_node_refused
check remove-library-refused remove_library_refused
before=$(acknowledged)
check install-again install_again
check rows-after-install-again rows_are_there "$before"
stop_writer
check remove remove
check purge purge
check no-start-without no_start_without
check after-purge after_purge
before=$(acknowledged)
start_writer
check rows-after-purge rows_are_there "$before"
stop_writer
check tables tables_are_sound
result "SHOW $(acknowledged) rows acknowledged and found; upgraded from $VERSION to $NEW_VERSION;" \
    "$(systemctl --version | head -n 1)"
result "DONE"
power_off
