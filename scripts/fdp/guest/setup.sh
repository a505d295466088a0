# Common parts of the scenarios: the drive, found by its features, and its counters. Sourced by /init.

set_up() {
    load_module crc32c_generic
    load_module nvme
    load_module ext4
}

# A line for the reader at the host's terminal.
show() {
    say "$*"
    result "SHOW $*"
}

# Numbers of NVMe drives change between boots. fdp_device NSID: the block device of the namespace NSID of the drive with
# write streams.
fdp_device() {
    local queue device
    for queue in /sys/block/nvme*/queue; do
        device=${queue%/queue}
        device=${device##*/}
        # Beside the device there may be an entry for the path to it, which is no device.
        if [ ! -b "/dev/$device" ] || [ "$(cat "$queue/max_write_streams")" = 0 ]; then continue; fi
        if [ "$(cat "/sys/block/$device/nsid")" = "$1" ]; then
            echo "/dev/$device"
            return 0
        fi
    done
    return 1
}

# An NVMe device without write streams.
plain_device() {
    local queue device
    for queue in /sys/block/nvme*/queue; do
        device=${queue%/queue}
        device=${device##*/}
        if [ -b "/dev/$device" ] && [ "$(cat "$queue/max_write_streams")" = 0 ]; then
            echo "/dev/$device"
            return 0
        fi
    done
    return 1
}

has_fdp_device() { fdp_device "$1" >/dev/null; }
has_plain_device() { plain_device >/dev/null; }

# counters FILE DEVICE...: what drive and kernel count, at a moment when nothing is being written.
counters() {
    local file=$1
    shift
    /redoubt/redoubt-device-test fdp-stats "$@" >"$file"
}

# moved NAME [OPTION...]: checks which handle received what between the counters in NAME.before and NAME.after.
moved() {
    local name=$1
    shift
    /redoubt/redoubt-device-test fdp-moved --before "$name.before" --after "$name.after" "$@" >/tmp/moved 2>/tmp/moved.error
}

# show_lines WHAT FILE
show_lines() {
    while read -r line; do show "$1: $line"; done <"$2"
}

# shown_moved WHAT NAME [OPTION...]: as moved, and shows it at the host.
shown_moved() {
    local what=$1 outcome=0
    shift
    moved "$@" || outcome=1
    cat /tmp/moved.error
    show_lines "$what" /tmp/moved
    return $outcome
}
