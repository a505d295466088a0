# A load with an end, for a server. Sourced by the scenarios.
. /guest/sql.sh

TRANSACTIONS=100
BULK_ROWS=8000

# A load with an end: transactions of several clients, and rows enough for some hundred pages.
small_load() {
    local client clients=""
    for client in $(seq $SQL_CLIENTS); do
        ledger_statements "$client" | head -n $((2 * TRANSACTIONS)) | sql proof >/dev/null &
        clients="$clients $!"
    done
    for client in $clients; do wait "$client" || stop client "a client failed"; done
    sql proof -e "CREATE TABLE bulk (id INT PRIMARY KEY, payload VARCHAR(500)) ENGINE=InnoDB;
        INSERT INTO bulk SELECT seq, REPEAT(SHA2(seq, 256), 6) FROM seq_1_to_$BULK_ROWS" || stop bulk "INSERT"
}

# The rows of `bulk`, each compared with what it must be.
bulk_is_whole() {
    local rows
    rows=$(sql proof -e "SELECT COUNT(*) FROM bulk WHERE payload = REPEAT(SHA2(id, 256), 6)") || return 1
    test "$rows" = $BULK_ROWS
}
