# Scenario: the stock server alone, its data directory on the DAX mount, without Redoubt. Shows that the guest does
# what the other scenarios rely on; the server maps its redo log with MAP_SYNC by itself. Sourced.
. /guest/sql.sh

datadir=/dax/server

load() {
    cp -R /seed/datadir $datadir
    sync
    start_server mariadbd --no-defaults --datadir=$datadir $SERVER_OPTIONS
    check redo-mapped grep -q 'memory-mapped' $SERVER_LOG
    check redo-map-sync maps_with_sync "$server" $datadir/ib_logfile0
    create_tables
    commit_until_reset
}

recover() {
    start_server mariadbd --no-defaults --datadir=$datadir $SERVER_OPTIONS
    check crash-recovery grep -q 'Starting crash recovery' $SERVER_LOG
    report_rows
    stop_server
}
