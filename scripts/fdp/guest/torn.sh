# Scenario: does ext4 with data=journal keep a page of 16 KiB whole when the machine is reset? With blocks of 16 KiB it
# must; with blocks of 4 KiB it does not promise that, and some page must be torn, or this test could not tell. Sourced.

# drive_named SERIAL
drive_named() {
    local drive
    for drive in /sys/block/nvme*; do
        if [ -b "/dev/${drive##*/}" ] && grep -qx "$1 *" "$drive/device/serial"; then
            echo "/dev/${drive##*/}"
            return 0
        fi
    done
    return 1
}

has_drives() { drive_named small-blocks >/dev/null && drive_named large-blocks >/dev/null; }

mount_both() {
    local name
    for name in small-blocks large-blocks; do
        mkdir -p /$name
        mount -t ext4 -o data=journal "$(drive_named $name)" /$name || stop mount $name
    done
}

load() {
    local name
    check drives wait_until 20 has_drives
    make_file_system "$(drive_named small-blocks)" -b 4096
    make_file_system "$(drive_named large-blocks)" -b 16384
    mount_both
    for name in small-blocks large-blocks; do
        # It ends only if it fails.
        (
            /redoubt/redoubt-device-test overwrite-pages --name $name /$name >&3
            stop $name "ended before the reset"
        ) &
    done
    wait
}

find_torn() {
    local outcome=0
    /redoubt/redoubt-device-test find-torn-pages --expect "$2" "/$1" >/tmp/torn || outcome=1
    show_lines "$1" /tmp/torn
    return $outcome
}

recover() {
    check drives wait_until 20 has_drives
    mount_both
    check large-blocks-whole find_torn large-blocks none
    check small-blocks-torn find_torn small-blocks some
}
