# Scenario: the kernel's NFS client on a node's volumes. Everything is in this guest: node, server, client. Sourced.
. /guest/sql.sh

PORT=2049
LIVE=/tmp/live
WRITABLE=/tmp/writable
MOMENT=/tmp/moment
COPY=/tmp/copy
TRANSACTIONS=50
# Longer than the guest is busy with other things while the moment is mounted.
MOMENT_IDLE_S=120

node_listens() {
    kill -0 "$node" 2>/dev/null || stop node-start "it ended: $(tail -n 3 /tmp/node.log | tr '\n' ' ')"
    grep -q '^listening on ' /tmp/node.listening
}

# mount_nfs EXPORT DIRECTORY OPTIONS: as `mount -t nfs` does; the kernel asks the MOUNT program itself.
mount_nfs() {
    mkdir -p "$2"
    mount -i -t nfs -o "$3,addr=127.0.0.1,vers=3,proto=tcp,port=$PORT,mountproto=tcp,mountport=$PORT,nolock" \
        "127.0.0.1:$1" "$2"
}

mount_live() { mount_nfs /shop $LIVE ro,noac,lookupcache=none; }
mount_moment() { mount_nfs /shop@test $MOMENT ro; }

transactions() {
    local client clients=""
    for client in $(seq $SQL_CLIENTS); do
        ledger_statements "$client" | head -n $((2 * $1)) | sql proof >/dev/null &
        clients="$clients $!"
    done
    for client in $clients; do wait "$client" || stop client "a client failed"; done
}

# Checks the server's files by their names, and compares a file that the server stores unchanged byte by byte.
live_data() {
    find $LIVE -type f >/tmp/files || return 1
    show "$(wc -l </tmp/files) files, ibdata1 of $(stat -c %s $LIVE/ibdata1) bytes"
    test "$(wc -l </tmp/files)" -gt 50 && cmp "$LIVE/proof/db.opt" /run/server/proof/db.opt &&
        test -f $LIVE/proof/ledger.ibd && test -d $LIVE/mysql
}

# The next reader sees the server's changes.
live_change() {
    sql proof -e "CREATE TABLE later (text VARCHAR(100)) ENGINE=MyISAM" || return 1
    # A plain file is on its way to the node for a moment.
    wait_until 10 test -f $LIVE/proof/later.MYD || return 1
    test "$(stat -c %s $LIVE/proof/later.MYD)" = 0 || return 1
    sql proof -e "INSERT INTO later VALUES ('first words'); FLUSH TABLES" || return 1
    wait_until 10 grep -q 'first words' $LIVE/proof/later.MYD || return 1
    sql proof -e "INSERT INTO later VALUES ('second words'); FLUSH TABLES" || return 1
    wait_until 10 grep -q 'second words' $LIVE/proof/later.MYD || return 1
    sql proof -e "DROP TABLE later" || return 1
    wait_until 10 test ! -e $LIVE/proof/later.MYD
}

# Mounted for writing, so that it is the node that refuses.
no_write() {
    mount_nfs /shop $WRITABLE rw || return 1
    ! touch $WRITABLE/new && ! rm -f $WRITABLE/ibdata1 && ! mkdir $WRITABLE/d &&
        ! mv -f $WRITABLE/ibdata1 $WRITABLE/b &&
        ! sh -c "echo x >>$WRITABLE/ibdata1" && ! chmod 777 $WRITABLE/ibdata1 && test -f $LIVE/ibdata1 &&
        test ! -e $LIVE/new && umount $WRITABLE
}

sums() { (cd "$1" && find . -type f | sort | xargs md5sum); }

moment_stays() {
    sums $MOMENT >/tmp/before && transactions $TRANSACTIONS && echo 3 >/proc/sys/vm/drop_caches &&
        sums $MOMENT >/tmp/after && cmp /tmp/before /tmp/after
}

live_moves() {
    sums $LIVE >/tmp/live.sums && ! cmp -s /tmp/before /tmp/live.sums
}

copy() { mkdir -p $COPY && cp -r $MOMENT/. $COPY/ && sums $COPY >/tmp/copied && cmp /tmp/before /tmp/copied; }

# Busybox' umount does not notify the node: it only stops sending requests.
exported() { /redoubt/redoubt volume export shop --to /tmp/export >/dev/null 2>&1; }
moment_ended() { umount $MOMENT && ! exported && wait_until $((4 * MOMENT_IDLE_S)) exported; }

start_node() {
    : >/tmp/node.listening
    /redoubt/redoubt node --data /run/node --ring 16MiB --batch 1MiB --apply-interval 1 --nfs 127.0.0.1:$PORT \
        --nfs-moment-idle $MOMENT_IDLE_S \
        >/tmp/node.listening 2>/tmp/node.log 3>&- &
    node=$!
    check node-start wait_until 60 node_listens
}

load() {
    start_node
    /redoubt/redoubt volume import shop --from /seed/datadir || stop import "redoubt volume import"
    start_server /redoubt/redoubt run --volume shop --datadir /run/server -- mariadbd --no-defaults $SERVER_OPTIONS
    create_tables
    transactions $TRANSACTIONS
    check mount mount_live
    check live-data live_data
    check live-change live_change
    check no-write no_write
    check mount-moment mount_moment
    # The clients go on from number 1 again, in a ledger of their own.
    sql proof -e "CREATE TABLE kept AS SELECT * FROM ledger; DELETE FROM ledger; UPDATE total SET transactions = 0" ||
        stop kept "CREATE TABLE"
    check moment-stays moment_stays
    check copy copy
    check live-moves live_moves
    check moment-ended moment_ended
    stop_server
    start_server mariadbd --no-defaults $SERVER_OPTIONS --datadir=$COPY
    result "CHECK server-start-on-copy ok"
    check copy-whole test "$(sql proof -e 'SELECT COUNT(*) FROM ledger')" = $((SQL_CLIENTS * TRANSACTIONS))
    report_rows
    stop_server
    umount $LIVE
    kill -TERM "$node"
    wait "$node"
}
