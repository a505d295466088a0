# Scenario: write streams of a raw device. First by themselves: a known number of bytes in each. Then a node with log,
# page journal and pages on the device, and a stock server on it. Sourced.
. /guest/node.sh

placed() { /redoubt/redoubt-device-test write-streams "$drive" >/tmp/placed; }
refused() { /redoubt/redoubt-device-test write-streams --expect refused "$(plain_device)"; }

# Handles by purpose, and the least bytes expected on each. The bulk rows are 3 MB of pages and as much of redo.
METADATA=0
REDO=1
JOURNAL=2
HOT_PAGES=3
COLD_PAGES=4

node_placed() {
    shown_moved node /tmp/node --at-least $METADATA=4096 --at-least $REDO=3000000 --at-least $JOURNAL=3000000 \
        --at-least $HOT_PAGES=16384 --at-least $COLD_PAGES=1000000
}

# The node's own counters of written bytes, read shortly before it ended.
journal_bytes=0
home_bytes=0
redo_bytes=0
note_node_counters() {
    journal_bytes=$((journal_bytes + $(node_counter page_journal_written_bytes)))
    home_bytes=$((home_bytes + $(node_counter page_home_written_bytes)))
    redo_bytes=$((redo_bytes + $(node_counter log_device_written_bytes)))
}

received() { awk -v handle="$1" '$2 == handle { print $(NF - 1) }' /tmp/moved; }

# Compares the handles with the node's own counters. A file on the raw device, such as a log segment, is filled with
# zeros once, and writes between the last look and the end are not counted. The length of the journal is known, so that
# its bytes have an upper limit, too.
node_agrees() {
    local fill=$((2 * JOURNAL_MIB * 1048576))
    show "the node counts: redo $redo_bytes, journal $journal_bytes, pages home $home_bytes bytes"
    test "$redo_bytes" -gt 0 && test "$journal_bytes" -gt 0 && test "$home_bytes" -gt 0 &&
        test "$(received $REDO)" -ge "$redo_bytes" && test "$(received $JOURNAL)" -ge "$journal_bytes" &&
        test "$(received $JOURNAL)" -le $((journal_bytes * 2 + fill)) &&
        test $(($(received $HOT_PAGES) + $(received $COLD_PAGES))) -ge "$home_bytes"
}

start_node_on_drive() {
    start_node --log-path "$drive" --journal-path "$drive" --pages-path "$drive" --page-protection journal
}

load() {
    check drive wait_until 20 has_fdp_device 1
    check plain-drive wait_until 20 has_plain_device
    drive=$(fdp_device 1)
    check streams-placed placed
    show_lines streams /tmp/placed
    check streams-refused refused

    check format /redoubt/redoubt device format --force --yes "$drive"
    counters /tmp/node.before "$drive" || stop counters "before the load"
    start_node_on_drive
    /redoubt/redoubt volume import shop --from /seed/datadir || stop import "redoubt volume import"
    start_server_on_node /run/server
    check status-journal status_says "page store.*journal"
    create_tables
    small_load
    report_rows
    stop_server
    note_node_counters
    end_node KILL
    # The same again from the device alone.
    start_node_on_drive
    start_server_on_node /run/server-2
    report_rows
    check bulk-whole bulk_is_whole
    stop_server
    note_node_counters
    end_node TERM
    counters /tmp/node.after "$drive" || stop counters "after the load"
    check node-streams-placed node_placed
    check node-agrees node_agrees
}
