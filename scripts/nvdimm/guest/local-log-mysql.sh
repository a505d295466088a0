# Scenario: as local-log, with a stock MySQL server. Sourced.
. /guest/local-log.sh

SQL_CLIENT=/mysql/bin/mysql
SERVER="/mysql/bin/mysqld --no-defaults"
SERVER_OPTIONS="$COMMON_OPTIONS --innodb-redo-log-capacity=16M --mysqlx=OFF --log-error-verbosity=3"
SEED=/seed/mysql
REDO_FILES="#innodb_redo/#ib_redo"

check_mapping() { check redo-map-sync maps_with_sync "$server" "$datadir/$REDO_FILES"; }
