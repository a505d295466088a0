# Start of each scenario: the NVDIMM as a DAX device, mounted, and an ordinary disk beside it. Sourced by /init.

pmem_supports_dax() { [ "$(cat /sys/block/pmem0/queue/dax 2>/dev/null)" = 1 ]; }

# The firmware announces the NVDIMM as a raw namespace, which cannot do DAX. A pfn device on top of it adds what
# is missing: a page structure for each of its pages. It writes a header into the namespace, so that later boots
# find it made already.
prepare_dax() {
    local bus=/sys/bus/nd/devices pfn
    wait_until 20 test -b /dev/pmem0 || stop nvdimm "no /dev/pmem0: $(ls $bus 2>&1)"
    if [ "$phase" = load ]; then
        say "making namespace0.0 fsdax"
        pfn=$(cat $bus/region0/pfn_seed)
        echo namespace0.0 >/sys/bus/nd/drivers/nd_pmem/unbind
        cat /proc/sys/kernel/random/uuid >"$bus/$pfn/uuid"
        echo ram >"$bus/$pfn/mode"
        echo 2097152 >"$bus/$pfn/align"
        echo namespace0.0 >"$bus/$pfn/namespace"
        echo "$pfn" >/sys/bus/nd/drivers/nd_pmem/bind
    fi
    check fsdax wait_until 20 pmem_supports_dax
}

mount_file_systems() {
    mount -t ext4 -o dax=always /dev/pmem0 /dax || stop mount "-o dax=always"
    mount -t ext4 /dev/vda /disk || stop mount "/dev/vda"
    check dax-mount grep -q '^/dev/pmem0 /dax ext4 .*dax=always' /proc/mounts
}

# The check must be able to fail: it has to tell a DAX mount from the same file system without it.
check_map_sync() {
    check map-sync /redoubt/redoubt-device-test map-sync --expect allowed /dax
    check map-sync-refused /redoubt/redoubt-device-test map-sync --expect refused /disk
}

# The command must fail, and because of MAP_SYNC.
refuses() {
    if "$@" >/tmp/refused 2>&1 3>&-; then
        cat /tmp/refused
        return 1
    fi
    cat /tmp/refused
    grep -q MAP_SYNC /tmp/refused
}

# A process maps the file named so with MAP_SYNC: the kernel marks such a mapping with the flag "sf".
maps_with_sync() {
    awk -v name="$2" '
        $1 ~ /^[0-9a-f]+-[0-9a-f]+$/ { inside = index($0, name) > 0 }
        inside && /^VmFlags:.* sf( |$)/ { found = 1 }
        END { exit !found }' "/proc/$1/smaps"
}

set_up() {
    load_modules
    prepare_dax
    if [ "$phase" = load ]; then
        make_file_system /dev/pmem0
        make_file_system /dev/vda
    fi
    mount_file_systems
    check_map_sync
}
