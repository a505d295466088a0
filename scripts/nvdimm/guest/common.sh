# Functions for /init and the scenarios. Sourced.

say() { echo "[guest $(cut -d ' ' -f 1 /proc/uptime)] $*"; }

# A line for the host.
result() { echo "$* ." >&3; }

# check NAME COMMAND...: tells the host how the command ended, and stops the guest if it failed.
check() {
    local name=$1
    shift
    if "$@"; then
        result "CHECK $name ok"
    else
        stop "$name" "failed: $*"
    fi
}

# stop NAME TEXT...: a failure. Nothing more is done; the host has what is needed.
stop() {
    local name=$1
    shift
    say "FAILED: $name: $*"
    result "CHECK $name FAILED $*"
    power_off
}

# Without a sync or an unmount, as everywhere here; but the lines for the host must have left the serial port, for
# which stty waits before it sets anything.
power_off() {
    stty -F /dev/ttyS1 raw -echo
    poweroff -f
}

# wait_until SECONDS COMMAND...: true as soon as the command is.
wait_until() {
    local deadline
    deadline=$(($(cut -d . -f 1 /proc/uptime) + $1))
    shift
    until "$@"; do
        if [ "$(cut -d . -f 1 /proc/uptime)" -ge "$deadline" ]; then return 1; fi
        usleep 100000
    done
}

load_modules() {
    local module
    while read -r module; do
        insmod "/modules/$module" || stop modules "insmod $module"
    done </modules/order
}

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

make_file_system() {
    say "mkfs.ext4 $1"
    MKE2FS_CONFIG=/tools/mke2fs.conf /tools/loader --argv0 mkfs.ext4 --library-path /tools/lib \
        /tools/mkfs.ext4 -q -F -b 4096 "$1" || stop mkfs "mkfs.ext4 $1"
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
