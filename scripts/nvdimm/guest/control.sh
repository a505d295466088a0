# Scenario: a server that acknowledges commits without making them durable, on an ordinary disk. Acknowledged rows
# must be missing after the reset: if none is, then the reset cuts nothing off, and the other scenarios prove
# nothing. Sourced.
. /guest/sql.sh

datadir=/disk/server

load() {
    cp -R /seed/datadir $datadir
    sync
    start_server mariadbd --no-defaults --datadir=$datadir $SERVER_OPTIONS
    create_tables
    sql -e 'SET GLOBAL innodb_flush_log_at_timeout = 600; SET GLOBAL innodb_flush_log_at_trx_commit = 0' ||
        stop settings "SET GLOBAL"
    commit_until_reset
}

recover() {
    start_server mariadbd --no-defaults --datadir=$datadir $SERVER_OPTIONS
    report_rows
    stop_server
}
