# Scenario: the log devices by themselves: persistent memory on the DAX mount, the other ones on the ordinary disk.
# Sourced.

DEVICES="pmem:/dax/device block:/disk/device-block file:/disk/device-file"

# for_each_device COMMAND...: with the device's name and directory as last arguments.
for_each_device() {
    local device
    for device in $DEVICES; do
        "$@" "${device%%:*}" "${device#*:}"
    done
}

append() {
    mkdir -p "$2"
    sync
    # It ends only if it fails.
    (
        /redoubt/redoubt-device-test append --device "$1" "$2" >&3
        stop "append-$1" "ended under load"
    ) &
}

# The lines of the process named so are awaited, as it maps its segments only after it started.
device_maps_with_sync() {
    maps_with_sync "$(pidof redoubt-device-test | tr ' ' '\n' | sort -n | head -n 1)" /dax/device/
}

verify() {
    check "verify-$1" verify_to_host "$1" "$2"
    check "append-$1" append_more "$1" "$2"
    check "verify-again-$1" verify_to_console "$1" "$2"
}

verify_to_host() { /redoubt/redoubt-device-test verify --device "$1" "$2" >&3; }
append_more() { /redoubt/redoubt-device-test append --device "$1" --bytes 2000000 "$2" >/dev/null; }
verify_to_console() { /redoubt/redoubt-device-test verify --device "$1" "$2"; }

# The persistent-memory device's own test, which is left out everywhere else for want of a DAX mount.
own_test_passes() {
    REDOUBT_DAX_DIR=/dax /redoubt/logdev-tests --ignored --test-threads=1 on_a_dax_mount >/tmp/own-test 2>&1 3>&-
    cat /tmp/own-test
    grep -q '^test result: ok. 1 passed' /tmp/own-test
}

load() {
    mkdir -p /disk/refused
    check pmem-refused refuses /redoubt/redoubt-device-test append --device pmem --bytes 1 /disk/refused
    check own-test own_test_passes
    for_each_device append
    check device-map-sync wait_until 30 device_maps_with_sync
    wait
}

recover() {
    for_each_device verify
}
