# What change.sh and look.sh need. Run by root.

umask 022
LC_ALL=C
export LC_ALL

# as UID GID GROUPS COMMAND...
as() {
    as_uid=$1 as_gid=$2 as_groups=$3
    shift 3
    case $as_groups in
    -) setpriv --reuid="$as_uid" --regid="$as_gid" --clear-groups -- "$@" ;;
    *) setpriv --reuid="$as_uid" --regid="$as_gid" --groups="$as_groups" -- "$@" ;;
    esac
}

# Prints what a command says, and how it ended.
try() {
    echo "# $*"
    "$@" </dev/null 2>&1
    echo "= $?"
}

# What there is, without the names of users.
show() {
    for shown in "$@"; do
        stat -c '%n %A %u %g' "$shown"
        getfacl -cn "$shown" 2>&1
        getfattr -m - "$shown" 2>&1
    done
}

# Whether some users may read, write and execute or search.
probe() {
    for probed in "$@"; do
        for who in "2001 2001 -" "2002 2002 -" "2003 2003 -" "2003 3001 -" "2003 3002 -" "2003 2003 3001,3002"; do
            # shellcheck disable=SC2086
            printf '%s: %s:' "$probed" "$who"
            for what in r w x; do
                # shellcheck disable=SC2086
                if as $who test -$what "$probed"; then printf ' %s' $what; else printf ' -'; fi
            done
            if [ -d "$probed" ]; then
                # shellcheck disable=SC2086
                as $who ls "$probed" >/dev/null 2>&1 && printf ' listed'
                # shellcheck disable=SC2086
                as $who touch "$probed/by" 2>/dev/null && printf ' made' && rm "$probed/by"
            else
                # shellcheck disable=SC2086
                as $who cat "$probed" >/dev/null 2>&1 && printf ' read'
                # shellcheck disable=SC2086
                as $who sh -c ": >>$probed" 2>/dev/null && printf ' written'
            fi
            echo
        done
    done
}

raw() {
    try setfattr -n "$1" -v "$2" "$3"
    show "$3"
}
