# A storage node and a stock server on it, for the scenarios. Sourced.
. /guest/load.sh

NODE_LOG=/tmp/node.log
NODE_DATA=/run/node
node_log_tail=""

JOURNAL_MIB=4
# The node's own buffers, as small as they may be, so that a small load goes through everything.
NODE_OPTIONS="--ring 16MiB --batch 1MiB --apply-interval 1 --journal ${JOURNAL_MIB}MiB"

node_listens() {
    kill -0 "$node" 2>/dev/null || stop node-start "it ended: $(tail -n 3 $NODE_LOG | tr '\n' ' ')"
    grep -q '^listening on ' /tmp/node.listening
}

# start_node OPTION...
start_node() {
    say "starting a node: $*"
    : >$NODE_LOG
    : >/tmp/node.listening
    /redoubt/redoubt node --data $NODE_DATA $NODE_OPTIONS "$@" >/tmp/node.listening 2>>$NODE_LOG 3>&- &
    node=$!
    if [ -n "$node_log_tail" ]; then kill "$node_log_tail"; fi
    tail -n +1 -f $NODE_LOG 3>&- &
    node_log_tail=$!
    check node-start wait_until 60 node_listens
}

# end_node SIGNAL
end_node() {
    kill "-$1" "$node"
    wait "$node"
}

# start_server_on_node DATA_DIRECTORY: an empty one: everything comes from the node.
start_server_on_node() {
    start_server /redoubt/redoubt run --volume shop --datadir "$1" -- mariadbd --no-defaults $SERVER_OPTIONS
}

# status_says TEXT
status_says() {
    /redoubt/redoubt status >/tmp/status || return 1
    cat /tmp/status
    grep -q "$1" /tmp/status
}

# node_counter NAME: what the node has counted since it started; counters that are 0 are not shown.
node_counter() {
    /redoubt/redoubt status | awk -v name="$1" '$1 == name { value = $2; exit } END { print value + 0 }'
}
