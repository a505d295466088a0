# Scenario: untorn writes of 16 KiB (RWF_ATOMIC), on a SCSI disk that the kernel emulates and that has atomic writes,
# with an ext4 that passes them on (bigalloc) and, on the same disk, one that does not. Sourced.
. /guest/node.sh

NODE_DATA=/atomic/node
SIZE_MIB=640
UNTORN_TEST=untorn_writes_work_where_they_are_offered
page_store="page store *"

scsi_disk() {
    local model
    for model in /sys/block/sd*/device/model; do
        if [ -e "$model" ] && grep -q scsi_debug "$model"; then
            model=${model%/device/model}
            echo "/dev/${model##*/}"
            return 0
        fi
    done
    return 1
}
has_scsi_disk() { test -b "$(scsi_disk)"; }

unit_max() { cat "/sys/block/${disk##*/}/queue/atomic_write_unit_max_bytes"; }

# prepare [OPTION...]: a new file system.
prepare() {
    umount /atomic 2>/dev/null
    mkdir -p /atomic
    make_file_system "$disk" "$@"
    mount -t ext4 "$disk" /atomic || stop mount "$disk"
}

# A test that is left out everywhere else, for want of such a disk.
untorn_test() {
    REDOUBT_UNTORN_DIR=/atomic /redoubt/storage-tests --test-threads=1 $UNTORN_TEST >/tmp/own-test 2>&1 3>&-
    cat /tmp/own-test
    grep -q '^test result: ok. 1 passed' /tmp/own-test
}

# The test must be able to fail: on a file system that can do 4 KiB at most it has to.
untorn_test_fails() {
    if untorn_test; then return 1; fi
    grep -q 'no untorn writes\|UntornLimits' /tmp/own-test
}

commits() { test "$(sql proof -e 'SELECT COUNT(*) FROM ledger')" -ge "$1"; }

# The node is killed while clients commit; the server waits for it and continues.
kill_node_under_load() {
    small_load &
    load=$!
    check commits wait_until 120 commits 40
    end_node KILL
    start_node "$@"
    wait $load || stop load "the load failed"
}

# A node with an option that its directory does not support must report an error, and not serve.
atomic_refused() {
    /redoubt/redoubt node --data /atomic/other --listen 127.0.0.1:0 --page-protection atomic >/tmp/refused.listening \
        2>/tmp/refused.node 3>&- &
    node=$!
    wait_until 60 grep -q '^listening on ' /tmp/refused.listening || return 1
    if /redoubt/redoubt volume create refused --node "$(sed 's/listening on //' /tmp/refused.listening)" 2>/tmp/refused; then
        return 1
    fi
    end_node TERM
    cat /tmp/refused
    show "plain ext4: $(head -n 1 /tmp/refused)"
    grep -q 'atomic needs untorn writes of 16384 bytes' /tmp/refused
}

load() {
    load_module scsi_debug "dev_size_mb=$SIZE_MIB" atomic_wr=1
    load_module sd_mod
    check disk wait_until 20 has_scsi_disk
    disk=$(scsi_disk)
    check disk-untorn test "$(unit_max)" -ge 16384
    show "the disk takes untorn writes of up to $(unit_max) bytes"

    prepare -O bigalloc -C 16384
    check untorn-writes untorn_test
    start_node --page-protection atomic
    /redoubt/redoubt volume import shop --from /seed/datadir || stop import "redoubt volume import"
    start_server_on_node /run/server
    check status-atomic status_says "$page_store atomic"
    create_tables
    kill_node_under_load --page-protection atomic
    report_rows
    check bulk-whole bulk_is_whole
    stop_server
    end_node KILL
    # The same again from the node alone, without an option for the protection of pages.
    start_node
    start_server_on_node /run/server-2
    check status-atomic-by-itself status_says "$page_store atomic"
    show "bigalloc: $(grep "$page_store" /tmp/status)"
    report_rows
    check bulk-whole-again bulk_is_whole
    stop_server
    end_node TERM

    prepare
    check untorn-test-fails untorn_test_fails
    check atomic-refused atomic_refused
    start_node
    /redoubt/redoubt volume import shop --from /seed/datadir || stop import "redoubt volume import"
    check status-journal status_says "$page_store journal"
    show "plain ext4: $(grep "$page_store" /tmp/status)"
    end_node TERM
}
