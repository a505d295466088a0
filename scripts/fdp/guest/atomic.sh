# Scenario: untorn writes of 16 KiB (RWF_ATOMIC), on a SCSI disk that the kernel emulates and that has atomic writes, with
# an ext4 that passes them on (bigalloc) and, on the same kind of disk, one that does not. Sourced.

SIZE_MIB=400

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

# Two file systems, one after the other, on a disk that takes 16 KiB at once.
prepare() {
    umount /atomic 2>/dev/null
    mkdir -p /atomic
    make_file_system "$disk" "$@"
    mount -t ext4 "$disk" /atomic || stop mount "$disk"
}

# own_tests PROGRAM TEST DIRECTORY: tests that are left out everywhere else, for want of such a disk.
own_test() {
    REDOUBT_UNTORN_DIR=$3 "/redoubt/$1-tests" --test-threads=1 "$2" >/tmp/own-test 2>&1 3>&-
    cat /tmp/own-test
    grep -q '^test result: ok. [1-9]' /tmp/own-test
}

UNTORN_TEST=untorn_writes_work_where_they_are_offered

# The test must be able to fail: on a file system that can do 4 KiB at most it has to.
untorn_test_fails() {
    if own_test logdev $UNTORN_TEST /atomic; then return 1; fi
    grep -q 'no untorn writes\|UntornLimits' /tmp/own-test
}

unit_max() { cat "/sys/block/${disk##*/}/queue/atomic_write_unit_max_bytes"; }

load() {
    load_module scsi_debug "dev_size_mb=$SIZE_MIB" atomic_wr=1
    load_module sd_mod
    check disk wait_until 20 has_scsi_disk
    disk=$(scsi_disk)
    check disk-untorn test "$(unit_max)" -ge 16384
    show "the disk takes untorn writes of up to $(unit_max) bytes"

    prepare -O bigalloc -C 16384
    check untorn-writes own_test logdev $UNTORN_TEST /atomic

    prepare
    check untorn-test-fails untorn_test_fails
}
