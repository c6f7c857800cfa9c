# manifest DIR: all that a tree shows, sorted. The guest and this machine both run it, by busybox's
# sh; DIR is a reiserfs that is mounted.
manifest() (
    cd "$1" || exit 1
    export LC_ALL=C
    find . -print0 | sort -z | xargs -0 -n 100 stat -c '%N %f %u %g %h %s %b %Y %Z %t:%T' || exit 1
    find . -type f -size -50000k -print0 | sort -z | xargs -0 -r -n 100 sha256sum || exit 1
    # Of large sparse files the ends.
    find . -type f -size +50000k -print0 | sort -z | xargs -0 -r -n 1 sh -c \
        'echo "$0 $(head -c 70000 "$0" | sha256sum) $(tail -c 70000 "$0" | sha256sum)"' || exit 1
    if [ -d attributes ]; then
        find . -path './attributes*' ! -type l -print0 | sort -z | xargs -0 -n 1 sh -c \
            'echo "# $0"; getfattr -h -d -m - -e hex "$0" | grep -v "^#" | sort'
        lsattr -d attributes/* | sort
    fi
)
