# shellcheck shell=bash
# Builds the initramfs of the scenarios with MySQL: $RUN_DIR/initramfs-mysql. Sourced by ./run, after host.sh.

# MySQL's files, in a second archive: the kernel takes several, one after the other. Its folder has a loader and
# libraries of its own, as here.
build_mysql_image() {
    local root=$RUN_DIR/image mysql=target/mysql-9.7 file
    say "packing MySQL"
    scripts/fetch-server mysql-9.7 >>"$LOG" 2>&1 || fail "MySQL could not be fetched; see $LOG"
    rm -rf "$root"
    mkdir -p "$root"/mysql/root/usr/{sbin,bin,lib64,lib/x86_64-linux-gnu,lib/mysql/plugin,share/mysql} "$root/seed"
    cp -R $mysql/bin "$root/mysql/"
    for file in usr/sbin/mysqld usr/bin/mysql; do
        cp -L "$mysql/root/$file" "$root/mysql/root/$file"
        "$mysql/root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$mysql/root/usr/lib/x86_64-linux-gnu" \
            --list "$mysql/root/$file" | awk '$2 == "=>" { print $3 }' >>"$root/libraries"
    done
    sort -u "$root/libraries" | xargs cp -L -t "$root/mysql/root/usr/lib/x86_64-linux-gnu"
    rm "$root/libraries"
    cp -L "$mysql/root/usr/lib64/ld-linux-x86-64.so.2" "$root/mysql/root/usr/lib64/"
    cp -R "$mysql/root/usr/share/mysql/english" "$mysql/root/usr/share/mysql/charsets" "$root/mysql/root/usr/share/mysql/"
    if [ ! -e "$GUEST_DIR/mysql-seed/complete" ]; then
        rm -rf "$GUEST_DIR/mysql-seed"
        mkdir -p "$GUEST_DIR/mysql-seed"
        $mysql/bin/mysqld --no-defaults --initialize-insecure --user="$(id -un)" --innodb-redo-log-capacity=16M \
            --datadir="$GUEST_DIR/mysql-seed/datadir" >>"$LOG" 2>&1 || fail "mysqld --initialize failed; see $LOG"
        : >"$GUEST_DIR/mysql-seed/complete"
    fi
    cp -R "$GUEST_DIR/mysql-seed/datadir" "$root/seed/mysql"
    (cd "$root" && find . | "$BUSYBOX" cpio -o -H newc -R 0:0 2>>"$LOG") >"$RUN_DIR/initramfs-mysql" ||
        fail "the initramfs for MySQL could not be packed; see $LOG"
    cat "$RUN_DIR/initramfs" >>"$RUN_DIR/initramfs-mysql"
    rm -rf "$root"
}
