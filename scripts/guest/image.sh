# shellcheck shell=bash
# Builds the guest's initramfs: $RUN_DIR/initramfs. Sourced by ./host.sh, after packages.sh. The run sets its contents:
#   GUEST_MODULES    kernel modules for `load_module`, see guest/common.sh; modules that a kernel lacks are left out
#   GUEST_SCRIPTS    a folder with the scenarios and setup.sh
#   GUEST_PROGRAMS   an array: programs of this build
#
# The guest has no other root file system. In it:
#   /init, /guest/             scripts/guest/guest and $GUEST_SCRIPTS
#   /bin                       busybox, with a link for each of its commands
#   /modules/                  the kernel modules, `list` of those asked for, and for each of them NAME.order: the files
#                              of what it needs and of itself, in the order in which to load them
#   /tools/                    mkfs.ext4 with its own loader and libraries
#   /redoubt/                  $GUEST_PROGRAMS
#   /seed/datadir/             a new data directory, made here: under emulation that takes a minute
#   everything else            this machine's mariadbd and mariadb, with libraries and message files, at the
#                              paths they have here

# copy_with_libraries ROOT PROGRAM...: into ROOT, at the same path, with every library the loader names.
copy_with_libraries() {
    local root=$1 program library
    shift
    for program in "$@"; do
        ldd "$program" | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }' |
            while read -r library; do
                if [ -e "$root$library" ]; then continue; fi
                mkdir -p "$root${library%/*}"
                cp -L "$library" "$root$library"
            done
    done
}

install_modules() {
    local root=$1 base version wanted name line file
    base=$(find "$GUEST_DIR/kernel/root" -type d -path '*/lib/modules/*' -prune)
    version=${base##*/}
    [ -d "$base/kernel" ] && [ "${base%/*}" != "$base" ] || fail "no modules in the kernel packages: $base"
    # depmod reads every module, so it is done once. Its warnings are about lists of the modules that are built in.
    if [ ! -e "$GUEST_DIR/kernel/root/lib" ]; then ln -s usr/lib "$GUEST_DIR/kernel/root/lib"; fi
    [ -e "$base/modules.dep" ] || (private_program depmod /bin/kmod -b "$GUEST_DIR/kernel/root" "$version") >>"$LOG" 2>&1 ||
        fail "depmod failed; see $LOG"
    mkdir -p "$root/modules"
    : >"$root/modules/list"
    for wanted in $GUEST_MODULES; do
        # A line names a module and what it needs, which is to be loaded from the end of the line.
        line=$(grep -E "(^|/)$wanted\.ko[^:]*:" "$base/modules.dep") || {
            printf 'no module %s in this kernel, taken to be built in\n' "$wanted" >>"$LOG"
            continue
        }
        printf '%s\n' "$wanted" >>"$root/modules/list"
        for file in $(printf '%s\n' "$line" | tr -d : | tr ' ' '\n' | tac); do
            name=${file##*/}
            name=${name%.xz}
            name=${name%.zst}
            printf '%s\n' "$name" >>"$root/modules/$wanted.order"
            if [ -e "$root/modules/$name" ]; then continue; fi
            case "$file" in
            *.xz) "$BUSYBOX" xzcat "$base/$file" >"$root/modules/$name" ;;
            *.zst) zstd -qdc "$base/$file" >"$root/modules/$name" ;;
            *) cp "$base/$file" "$root/modules/$name" ;;
            esac
        done
    done
}

install_tools() {
    local root=$1 libraries=$GUEST_DIR/host/root file
    mkdir -p "$root/tools/lib"
    cp "$libraries/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" "$root/tools/loader"
    cp -L "$libraries/sbin/mke2fs" "$root/tools/mkfs.ext4"
    cp "$libraries/etc/mke2fs.conf" "$root/tools/mke2fs.conf"
    for file in $("$libraries/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" --list --library-path \
        "$libraries/usr/lib/x86_64-linux-gnu:$libraries/lib/x86_64-linux-gnu" "$libraries/sbin/mke2fs" |
        awk '$2 == "=>" { print $3 }'); do
        cp -L "$file" "$root/tools/lib/"
    done
}

# A data directory as a distribution makes it, root without a password. Made once: it does not depend on the build.
make_seed() {
    local datadir=$GUEST_DIR/seed
    if [ -e "$datadir/complete" ]; then return 0; fi
    say "making a data directory with mariadb-install-db"
    rm -rf "$datadir"
    mkdir -p "$datadir"
    mariadb-install-db --no-defaults --user="$(id -un)" --datadir="$datadir/datadir" --skip-test-db \
        --auth-root-authentication-method=normal --innodb-log-file-size=16M >>"$LOG" 2>&1 ||
        fail "mariadb-install-db failed; see $LOG"
    : >"$datadir/complete"
}

install_server() {
    local root=$1 share program
    for program in mariadbd mariadb; do
        program=$(command -v "$program") || fail "no $program here: install mariadb-server-core and mariadb-client-core"
        mkdir -p "$root${program%/*}"
        cp -L "$program" "$root$program"
        copy_with_libraries "$root" "$program"
    done
    share=$(mariadbd --no-defaults --verbose --help 2>/dev/null | awk '$1 == "lc-messages-dir" { print $2 }')
    [ -d "$share/english" ] || share=/usr/share/mysql
    [ -d "$share/english" ] || fail "the server's message files are not in $share"
    mkdir -p "$root$share"
    cp -R "$share/english" "$share/charsets" "$root$share/"
}

build_image() {
    local root=$RUN_DIR/image program
    say "packing the guest"
    rm -rf "$root"
    mkdir -p "$root"/{bin,sbin,usr/bin,usr/sbin,proc,sys,dev,tmp,run,dax,disk,etc,root,guest,redoubt,seed}
    cp scripts/guest/guest/init "$root/init"
    cp scripts/guest/guest/*.sh "$GUEST_SCRIPTS"/*.sh "$root/guest/"
    chmod 755 "$root/init"
    cp "$BUSYBOX" "$root/bin/busybox"
    for program in $("$BUSYBOX" --list); do
        if [ "$program" != busybox ]; then ln -s busybox "$root/bin/$program"; fi
    done
    printf 'root:x:0:0:root:/root:/bin/sh\n' >"$root/etc/passwd"
    printf 'root:x:0:\n' >"$root/etc/group"
    printf '127.0.0.1 localhost\n' >"$root/etc/hosts"
    install_modules "$root"
    install_tools "$root"
    install_server "$root"
    for program in "${GUEST_PROGRAMS[@]}"; do
        cp "$program" "$root/redoubt/"
        copy_with_libraries "$root" "$program"
    done
    make_seed
    cp -R "$GUEST_DIR/seed/datadir" "$root/seed/"
    (cd "$root" && find . | "$BUSYBOX" cpio -o -H newc -R 0:0 2>>"$LOG") >"$RUN_DIR/initramfs" ||
        fail "the initramfs could not be packed; see $LOG"
    rm -rf "$root"
}
