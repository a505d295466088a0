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

# load_module NAME [PARAMETER...]: with what it needs. A module that this kernel has built in is not in the list.
load_module() {
    local wanted=$1 file name
    shift
    grep -qx "$wanted" /modules/list || return 0
    while read -r file; do
        name=$(echo "${file%.ko}" | tr - _)
        if grep -q "^$name " /proc/modules; then continue; fi
        if [ "$name" = "$wanted" ]; then
            insmod "/modules/$file" "$@" || stop modules "insmod $file $*"
        else
            insmod "/modules/$file" || stop modules "insmod $file"
        fi
    done <"/modules/$wanted.order"
}

load_modules() {
    local name
    while read -r name; do
        load_module "$name"
    done </modules/list
}

# make_file_system DEVICE [OPTION...]: ext4, with blocks of 4 KiB unless the options say otherwise.
make_file_system() {
    say "mkfs.ext4 $*"
    MKE2FS_CONFIG=/tools/mke2fs.conf /tools/loader --argv0 mkfs.ext4 --library-path /tools/lib \
        /tools/mkfs.ext4 -q -F -b 4096 "$@" || stop mkfs "mkfs.ext4 $*"
}
