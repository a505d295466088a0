# Scenario: the stock server without a storage node, its redo log in persistent memory by `redoubt run --local-log`.
# After the reset a copy of the files is recovered by the server alone, and the files themselves with the library.
# Sourced.
. /guest/sql.sh

datadir=/dax/server
copy=/dax/copy

start_with_local_log() {
    start_server /redoubt/redoubt run --local-log --datadir $datadir -- mariadbd --no-defaults $SERVER_OPTIONS
}

# The server's own mapping is refused by the library, so a mapping with MAP_SYNC is the library's.
not_mapped_by_server() { ! grep -q 'memory-mapped' $SERVER_LOG; }

# The counters are in the file that `redoubt status` reads.
status_says_map_sync() {
    /redoubt/redoubt status --local-log --datadir $datadir >/tmp/status || return 1
    cat /tmp/status
    grep -q 'MAP_SYNC' /tmp/status
}

load() {
    mkdir -p /disk/refused
    check local-log-refused refuses /redoubt/redoubt run --local-log --datadir /disk/refused -- \
        mariadbd --no-defaults $SERVER_OPTIONS
    cp -R /seed/datadir $datadir
    sync
    start_with_local_log
    check redo-map-sync maps_with_sync "$server" $datadir/ib_logfile0
    check not-mapped-by-server not_mapped_by_server
    create_tables
    check status-map-sync status_says_map_sync
    commit_until_reset
}

rows() { sql proof -e "SELECT client, number, payload FROM ledger ORDER BY client, number"; }

recover() {
    cp -R $datadir $copy
    start_server mariadbd --no-defaults --datadir=$copy $SERVER_OPTIONS
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
