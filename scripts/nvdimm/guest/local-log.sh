# Scenario: the stock server without a storage node, its redo log in persistent memory by `redoubt run --local-log`.
# After the reset a copy of the files is recovered by the server alone, and the files themselves with the library.
# Sourced.
. /guest/sql.sh

SERVER="mariadbd --no-defaults"
SEED=/seed/datadir
REDO_FILES=ib_logfile0
datadir=/dax/server
copy=/dax/copy

start_with_local_log() {
    start_server /redoubt/redoubt run --local-log --datadir $datadir -- $SERVER $SERVER_OPTIONS
}

not_mapped_by_server() { ! grep -q 'memory-mapped' $SERVER_LOG; }

# MariaDB would map its redo log by itself; the library refuses it, so the mapping there is must be the library's.
check_mapping() {
    check redo-map-sync maps_with_sync "$server" "$datadir/$REDO_FILES"
    check not-mapped-by-server not_mapped_by_server
}

# The counters are in the file that `redoubt status` reads.
status_says_map_sync() {
    /redoubt/redoubt status --local-log --datadir $datadir >/tmp/status || return 1
    cat /tmp/status
    grep -q 'MAP_SYNC' /tmp/status
}

load() {
    mkdir -p /disk/refused
    check local-log-refused refuses /redoubt/redoubt run --local-log --datadir /disk/refused -- $SERVER $SERVER_OPTIONS
    cp -R "$SEED" $datadir
    sync
    start_with_local_log
    check_mapping
    create_tables
    check status-map-sync status_says_map_sync
    commit_until_reset
}

rows() { sql proof -e "SELECT client, number, payload FROM ledger ORDER BY client, number"; }

recover() {
    cp -R $datadir $copy
    start_server $SERVER --datadir=$copy $SERVER_OPTIONS
    check crash-recovery-stock grep -q 'Starting crash recovery' $SERVER_LOG
    rows >/tmp/rows-stock || stop rows "SELECT"
    stop_server

    start_with_local_log
    check crash-recovery grep -q 'Starting crash recovery' $SERVER_LOG
    report_rows
    rows >/tmp/rows || stop rows "SELECT"
    check same-rows-as-stock cmp /tmp/rows-stock /tmp/rows
    status_says_map_sync
    stop_server
}
