# A server under load, and the data that remain after the reset. Sourced by the scenarios.
#
# Table `ledger` has one row per transaction of each client, `total` the number of them, changed in the same
# transaction: a torn transaction shows as a difference. The contents of a row follow from its key.

SQL_CLIENTS=4
SQL_SOCKET=/run/server.sock
SERVER_LOG=/tmp/server.log
SQL_CLIENT=mariadb
COMMON_OPTIONS="--user=root --socket=$SQL_SOCKET --skip-networking --innodb-buffer-pool-size=64M
--innodb-flush-log-at-trx-commit=1 --pid-file=/run/server.pid"
SERVER_OPTIONS="$COMMON_OPTIONS --innodb-log-file-size=16M"
server_log_tail=""
PAYLOAD="REPEAT(SHA2(CONCAT(client, '-', number), 256), 1 + number % 7)"

# Fails at the first error, as a batch does.
sql() { $SQL_CLIENT --no-defaults --user=root --socket="$SQL_SOCKET" --batch --skip-column-names --unbuffered "$@"; }

server_answers() {
    kill -0 "$server" 2>/dev/null || stop server-start "it ended: $(tail -n 3 $SERVER_LOG | tr '\n' ' ')"
    sql -e 'SELECT 1' >/dev/null 2>&1
}

# start_server COMMAND...: in the background, as $server; its log is on the console, too.
start_server() {
    say "starting: $*"
    : >$SERVER_LOG
    "$@" >>$SERVER_LOG 2>&1 3>&- &
    server=$!
    if [ -n "$server_log_tail" ]; then kill "$server_log_tail"; fi
    tail -n +1 -f $SERVER_LOG 3>&- &
    server_log_tail=$!
    check server-start wait_until 120 server_answers
}

# The endless work of one client. A commit is acknowledged when the client reads its answer; only then does the
# client send the statement that writes the ACK line. (INSERT ... RETURNING would answer before the commit.)
ledger_statements() {
    awk -v client="$1" -v payload="$PAYLOAD" 'BEGIN {
        for (number = 1; ; number++) {
            values = payload; gsub("client", client, values); gsub("number", number, values)
            print "BEGIN; INSERT INTO ledger VALUES (" client ", " number ", " values ");" \
                " UPDATE total SET transactions = transactions + 1 WHERE client = " client "; COMMIT;"
            print "SELECT \"ACK " client " " number " .\";"
        }
    }'
}

create_tables() {
    local client
    sql -e "CREATE DATABASE proof" || stop tables "CREATE DATABASE"
    sql proof -e "CREATE TABLE ledger (client INT, number INT, payload VARCHAR(500), PRIMARY KEY (client, number),
            KEY (payload(40))) ENGINE=InnoDB;
        CREATE TABLE total (client INT PRIMARY KEY, transactions INT NOT NULL) ENGINE=InnoDB;" ||
        stop tables "CREATE TABLE"
    for client in $(seq $SQL_CLIENTS); do
        sql proof -e "INSERT INTO total VALUES ($client, 0)" || stop tables "INSERT"
    done
}

# Runs clients until the reset.
commit_until_reset() {
    local client
    say "$SQL_CLIENTS clients commit until the reset"
    for client in $(seq $SQL_CLIENTS); do
        # It ends only if a statement fails.
        (
            ledger_statements "$client" | sql proof >&3
            stop client "client $client ended under load"
        ) &
    done
    wait "$server"
    stop server-load "the server ended under load: $(tail -n 3 $SERVER_LOG | tr '\n' ' ')"
}

# Sends the keys of all rows that are whole, and checks that each client's rows are without a gap, are as many as
# `total` says, and that index and table agree.
report_rows() {
    local broken
    sql proof -e "SELECT CONCAT('ROW ', client, ' ', number, ' .') FROM ledger WHERE payload = $PAYLOAD
        ORDER BY client, number" >&3 || stop rows "SELECT"
    broken=$(sql proof -e "SELECT COUNT(*) FROM total LEFT JOIN
        (SELECT client, COUNT(*) AS rows_found, MAX(number) AS last FROM ledger GROUP BY client) AS found
        USING (client) WHERE transactions <> COALESCE(rows_found, 0) OR transactions <> COALESCE(last, 0)")
    check transactions-whole test "$broken" = 0
    sql proof -e 'CHECK TABLE ledger, total EXTENDED' >/tmp/check-table || stop check-table "CHECK TABLE"
    cat /tmp/check-table
    check check-table awk '$NF == "OK" { ok++ } END { exit !(ok == 2 && NR == 2) }' /tmp/check-table
}

stop_server() {
    sql -e SHUTDOWN
    wait "$server"
}
