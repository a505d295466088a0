# shellcheck shell=bash
# Common parts of the programs that stand where the test driver looks for MariaDB's. Sourced by them, with the name of
# the program that they stand for in $0.
#
# Environment, from ../run: SUITE_PROGRAMS (the tree with MariaDB's own programs, .../usr), SUITE_REDOUBT (the
# command), SUITE_NODE (host:port), SUITE_RUN_OPTIONS (further options of `redoubt run`), SUITE_STATE (a folder: one file
# per volume, with its last server and the path of its directory, and events.log).
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

# Where the files of a volume lie when it is left, if settings of its server put some outside the data directory: a file
# that sets data_home, log_home, undo_home and data_files.
layout_file() { printf '%s\n' "$SUITE_STATE/layouts/$1"; }

# Tablespace files of another InnoDB instance in a data directory, while this volume's server has the directory.
others_directory() { printf '%s.others-%s\n' "$1" "$2"; }

# leave_volume DATADIR [VOLUME]: the directory becomes a plain one, an export of its volume, as a user needs it to
# change the files of a server that is down. Files that settings put elsewhere go there. The next start imports it.
leave_volume() {
    local datadir=$1 volume=${2:-} data_home=$1 log_home=$1 undo_home=$1 data_files=ibdata1 others file
    volume=${volume:-$(volume_in "$datadir")}
    # shellcheck source=/dev/null # written by mariadbd here
    if [ -f "$(layout_file "$volume")" ]; then source "$(layout_file "$volume")"; fi
    "$SUITE_REDOUBT" volume export --node "$SUITE_NODE" --to "$datadir.export" "$volume" >/dev/null || return 1
    put_others_aside "$datadir" "$volume" "$data_home" || return 1
    find "$datadir" -mindepth 1 -delete
    for file in $data_files; do move_out "$datadir" "$file" "$data_home" || return 1; done
    move_out "$datadir" ib_logfile0 "$log_home" || return 1
    if [ "$undo_home" != "$datadir" ]; then
        rm -f "$undo_home"/undo[0-9][0-9][0-9]
        for file in "$datadir.export"/undo[0-9][0-9][0-9]; do
            [ ! -f "$file" ] || move_out "$datadir" "${file##*/}" "$undo_home" || return 1
        done
    fi
    find "$datadir.export" -mindepth 1 -maxdepth 1 -exec mv -t "$datadir" -- {} +
    rmdir "$datadir.export"
    note_tables "$datadir" "$data_home"
    others=$(others_directory "$datadir" "$volume")
    if [ -d "$others" ]; then put_back "$others" "$datadir"; fi
    event "left $volume $datadir"
}

# move_out DATADIR FILE HOME: from the export of a data directory to where a setting leads.
move_out() { [ "$3" = "$1" ] || mv -f -- "$1.export/$2" "$3/$2"; }

# put_back FROM TO: moves the files that were set aside. FROM goes away.
put_back() {
    (cd "$1" && find . -type f -print0 | xargs -r -0 cp -al --parents -t "$2" --) && rm -rf "$1"
}

# Of a data directory that several instances of InnoDB use, each with its system tablespace elsewhere, the tablespace
# files by the instance that they belong to: lines of that place, inode number and path. A file that was copied there
# since has another number.
tables_file() { printf '%s.tables\n' "$1"; }

# note_tables DATADIR HOME: all tablespace files that are there now are this instance's.
note_tables() {
    local file
    file=$(tables_file "$1")
    touch "$file"
    {
        awk -F'\t' -v home="$2" '$1 != home' "$file"
        (cd "$1" && find . -mindepth 2 -name '*.ibd' -printf "$2\t%i\t%P\n")
    } >"$file.new"
    mv "$file.new" "$file"
}

# tables_of_others DATADIR HOME: tablespace files there that are not this instance's.
tables_of_others() {
    local home inode path
    [ -f "$(tables_file "$1")" ] || return 0
    while IFS=$'\t' read -r home inode path; do
        if [ "$home" != "$2" ] && [ "$(stat -c %i -- "$1/$path" 2>/dev/null)" = "$inode" ]; then
            printf '%s\n' "$path"
        fi
    done <"$(tables_file "$1")"
}

# put_others_aside DATADIR VOLUME HOME: tablespace files that are not this instance's, under the same names.
put_others_aside() {
    local path others
    others=$(others_directory "$1" "$2")
    while read -r path; do
        mkdir -p "$others/${path%/*}" || return 1
        mv -f -- "$1/$path" "$others/$path" || return 1
    done < <(tables_of_others "$1" "$3")
}

# leading_options ARGUMENT...: the options that choose option files, which come first.
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

# all_options GROUPS ARGUMENT...: the options of these groups in option files, and then the arguments, one per line and
# each option as --name=VALUE with dashes in the name, without "loose".
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
