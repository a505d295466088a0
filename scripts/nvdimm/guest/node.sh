# Scenario: a storage node with its log on the DAX mount and its pages on the ordinary disk, and the stock server on
# it. The server's data directory is in memory and gone after the reset: everything comes from the node. Sourced.
. /guest/sql.sh

NODE_LOG=/tmp/node.log
NODE_DATA=/disk/node
NODE_DEVICE=/dax/log
node_log_tail=""

node_listens() {
    kill -0 "$node" 2>/dev/null || stop node-start "it ended: $(tail -n 3 $NODE_LOG | tr '\n' ' ')"
    grep -q '^listening on ' /tmp/node.listening
}

# start_node LOG_DIRECTORY
start_node() {
    say "starting a node with its log in $1"
    mkdir -p "$1"
    : >$NODE_LOG
    : >/tmp/node.listening
    /redoubt/redoubt node --data $NODE_DATA --log-path "$1" --log-device pmem \
        >/tmp/node.listening 2>>$NODE_LOG 3>&- &
    node=$!
    if [ -n "$node_log_tail" ]; then kill "$node_log_tail"; fi
    tail -n +1 -f $NODE_LOG 3>&- &
    node_log_tail=$!
    check node-start wait_until 60 node_listens
}

start_server_on_node() {
    start_server /redoubt/redoubt run --volume shop --datadir /run/server -- \
        mariadbd --no-defaults $SERVER_OPTIONS
}

load() {
    start_node /disk/refused
    check node-log-refused refuses /redoubt/redoubt volume create refused
    kill "$node"
    wait "$node"
    start_node $NODE_DEVICE
    /redoubt/redoubt volume import shop --from /seed/datadir || stop import "redoubt volume import"
    start_server_on_node
    check log-map-sync maps_with_sync "$node" $NODE_DEVICE/
    create_tables
    commit_until_reset
}

recover() {
    check log-kept test -n "$(ls -A $NODE_DEVICE)"
    start_node $NODE_DEVICE
    start_server_on_node
    check crash-recovery grep -q 'Starting crash recovery' $SERVER_LOG
    report_rows
    check log-map-sync maps_with_sync "$node" $NODE_DEVICE/
    /redoubt/redoubt status
    stop_server
}
