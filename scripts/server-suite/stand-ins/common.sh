# shellcheck shell=bash
# What the programs have in common that stand where the test driver looks for MariaDB's. Sourced by them, with the name
# of the program that they stand for in $0.
#
# Environment, from ../run: SUITE_PROGRAMS (the tree with MariaDB's own programs, .../usr), SUITE_REDOUBT (the
# command), SUITE_NODE (host:port), SUITE_STATE (a folder: one file per volume, with its last server and the path of
# its directory, and events.log).
set -uo pipefail

: "${SUITE_PROGRAMS:?}" "${SUITE_REDOUBT:?}" "${SUITE_NODE:?}" "${SUITE_STATE:?}"

event() { printf '%s %s %s\n' "$(date +%s)" "$$" "$*" >>"$SUITE_STATE/events.log"; }

# volume_in DIRECTORY: the volume that a server's directory belongs to; nothing for any other directory.
volume_in() { sed -n 's/.*"volume":"\([^"]*\)".*/\1/p' "$1/.redoubt" 2>/dev/null; }

# datadir_above PATH: the server's directory that a path leads into.
datadir_above() {
    local directory
    directory=$(realpath -m "$1")
    while [ "$directory" != / ]; do
        if [ -f "$directory/.redoubt" ]; then
            printf '%s\n' "$directory"
            return 0
        fi
        directory=${directory%/*}
        directory=${directory:-/}
    done
    return 1
}

# read_with DATADIR PROGRAM ARGUMENT...: becomes the program, which sees the volume where the server's directory is.
read_with() {
    local datadir=$1 volume
    shift
    volume=$(volume_in "$datadir")
    event "reader $volume $datadir ${1##*/}"
    exec "$SUITE_REDOUBT" run --reader --node "$SUITE_NODE" --volume "$volume" --datadir "$datadir" -- "$@"
}

# is_served VOLUME: whether the server that was started on it last still runs.
is_served() {
    local pid rest
    read -r pid rest <"$SUITE_STATE/volumes/$1" && kill -0 "$pid" 2>/dev/null
}

# leave_volume DATADIR: the directory becomes a plain one, an export of its volume, as somebody would have it who is
# to change the files of a server that is down. The next start imports it.
leave_volume() {
    local datadir=$1 volume
    volume=$(volume_in "$datadir")
    "$SUITE_REDOUBT" volume export --node "$SUITE_NODE" --to "$datadir.export" "$volume" >/dev/null || return 1
    find "$datadir" -mindepth 1 -delete
    find "$datadir.export" -mindepth 1 -maxdepth 1 -exec mv -t "$datadir" -- {} +
    rmdir "$datadir.export"
    event "left $volume $datadir"
}

# leading_options ARGUMENT...: those that choose option files, which come first.
leading_options() {
    local argument
    for argument in "$@"; do
        case "$argument" in
        --defaults-* | --no-defaults) printf '%s\n' "$argument" ;;
        --innobackupex) ;;
        *) break ;;
        esac
    done
}

# all_options GROUPS ARGUMENT...: what option files say for these groups, and then the arguments, one per line and each
# option as --name=VALUE with dashes in the name, without "loose".
all_options() {
    local groups=$1 leading
    shift
    mapfile -t leading < <(leading_options "$@")
    {
        # shellcheck disable=SC2086 # several groups
        "$SUITE_PROGRAMS/bin/my_print_defaults" "${leading[@]}" $groups 2>/dev/null
        [ $# -eq 0 ] || printf '%s\n' "$@"
    } | awk '/^--./ {
        end = index($0, "="); name = end ? substr($0, 1, end - 1) : $0; value = end ? substr($0, end) : ""
        gsub("_", "-", name); sub("^--loose-", "--", name); print name value; next
    } { print }'
}

# last_value NAME: of the options on the input, the value that counts. Of an option without value: nothing.
last_value() { sed -n "s/^--$1=//p" | tail -n 1; }
