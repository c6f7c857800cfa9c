# What the scripts share that run in a mount: PLACE, where they begin. OUTSIDE is a directory that
# is not in the mount, and stays when the server dies.
set -eu
trap 'exit 143' TERM
# The other mounts that this namespace has copied would not end before the script.
while read -r _ _ _ _ at rest; do
    case "$at $rest" in
        "$PLACE "*) ;;
        *" - fuse"* | *" /dev/loop"* | *" - overlay "*)
            case $at in
                / | /dev* | /proc* | /sys* | /run* | /etc*) ;;
                *) umount -l "$at" || true ;;
            esac
            ;;
    esac
done < /proc/self/mountinfo
skip() { echo "SKIPPED $*"; exit 0; }
# The runner then kills the server, and the script goes on for as long as it can.
ready() { echo READY; }
# Tries for half a minute until it succeeds.
soon() {
    tries=600
    while ! "$@" && [ $tries -gt 0 ]; do sleep 0.05; tries=$((tries - 1)); done
    [ $tries -gt 0 ]
}
# It prints nothing.
silent() {
    "$@" > "$OUTSIDE/silent" 2>&1 || { cat "$OUTSIDE/silent"; return 1; }
    cat "$OUTSIDE/silent"
    [ ! -s "$OUTSIDE/silent" ]
}
fail() { tail -n 25 "$2"; echo "FAILED $1"; exit 1; }
lines() { wc -l < "$1"; }
# A check of what prints much: the end of it is told.
long() {
    title=$1
    shift
    if "$@" > "$OUTSIDE/log" 2>&1; then echo "good $title"; else fail "$title" "$OUTSIDE/log"; fi
}
