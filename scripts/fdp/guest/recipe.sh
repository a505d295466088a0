# Scenario: data placement without a line of code. The stock server, doublewrite off, on ext4 with data=journal: the
# file system's journal keeps pages from being torn. With the journal on a second namespace, which has a reclaim unit
# handle of its own, journal and data reach different handles; with the journal inside the file system they share one.
# The namespaces have the handles 0 (data) and 5 (journal). Blocks of 16 KiB, because ext4 puts one block of a file, and
# no more, into its journal as a whole. Sourced.
. /guest/load.sh

DATA_HANDLE=0
JOURNAL_HANDLE=5
# The bulk rows alone are 3 MB of table and as much of redo.
AT_LEAST_BYTES=6000000
SERVER_OPTIONS="$SERVER_OPTIONS --innodb-doublewrite=0"
# mkfs itself writes all its structures, so that the kernel writes none of them during the load.
EAGER="-E lazy_itable_init=0,lazy_journal_init=0"
mount_point=/recipe
datadir=$mount_point/server

# run_on NAME MOUNT_OPTIONS: the load on a fresh file system, which is unmounted at the end, so that
# everything is where it belongs. The counters are read while the file system is idle.
run_on() {
    local name=$1 options=$2
    mkdir -p $mount_point
    mount -t ext4 -o "$options" "$data" $mount_point || stop mount "-o $options $data"
    cp -R /seed/datadir $datadir
    sync
    counters "/tmp/$name.before" "$data" "$journal" || stop counters "before the load"
    start_server mariadbd --no-defaults --datadir=$datadir $SERVER_OPTIONS
    create_tables
    small_load
    report_rows
    stop_server
    umount $mount_point || stop umount $mount_point
    counters "/tmp/$name.after" "$data" "$journal" || stop counters "after the load"
}

both_handles() {
    shown_moved "journal outside" /tmp/outside \
        --at-least $DATA_HANDLE=$AT_LEAST_BYTES --at-least $JOURNAL_HANDLE=$AT_LEAST_BYTES
}

# The check above must be able to fail: it has to tell two handles from one.
both_handles_refused() {
    if moved /tmp/inside --at-least $DATA_HANDLE=$AT_LEAST_BYTES --at-least $JOURNAL_HANDLE=$AT_LEAST_BYTES; then
        return 1
    fi
    cat /tmp/moved.error
    grep -q "handle $JOURNAL_HANDLE received 0 bytes" /tmp/moved.error
}

one_handle() { shown_moved "journal inside" /tmp/inside --at-least $DATA_HANDLE=$((2 * AT_LEAST_BYTES)); }

load() {
    check drive wait_until 20 has_fdp_device 2
    data=$(fdp_device 1)
    journal=$(fdp_device 2)
    cat /sys/block/nvme*/queue/max_write_streams /sys/block/nvme*/queue/write_stream_granularity

    say "ext4 with its journal on a namespace of its own"
    make_file_system "$journal" -b 16384 -O journal_dev
    make_file_system "$data" -b 16384 -J "device=$journal" $EAGER
    run_on outside "data=journal,journal_path=$journal"
    cat /tmp/outside.after
    check journal-on-own-handle both_handles

    say "the control: the journal inside the file system"
    make_file_system "$data" -b 16384 -J size=128 $EAGER
    run_on inside data=journal
    check control-refused both_handles_refused
    check journal-inside-one-handle one_handle
}
