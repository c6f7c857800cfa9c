# inotifywait of what happens in the mount.
sees() { check "inotifywait sees $1" soon grep -qxF "$1" $OUTSIDE/events; }

work() {
    mkdir -p watched/dir
    echo old > watched/old
    inotifywait -m -r -e create,modify,attrib,close_write,move,delete --format '%e %w%f' watched \
        > $OUTSIDE/events 2> $OUTSIDE/said &
    watcher=$!
    check "watches" soon grep -q established $OUTSIDE/said
    check "nothing has happened" [ ! -s $OUTSIDE/events ]
    echo new > watched/new
    sees "CREATE watched/new"
    sees "MODIFY watched/new"
    sees "CLOSE_WRITE,CLOSE watched/new"
    echo more >> watched/old
    sees "MODIFY watched/old"
    truncate -s 1 watched/dir/../old
    chmod 600 watched/old
    sees "ATTRIB watched/old"
    ln watched/old watched/dir/link
    sees "CREATE watched/dir/link"
    mv watched/new watched/dir/moved
    sees "MOVED_FROM watched/new"
    sees "MOVED_TO watched/dir/moved"
    mkdir watched/made
    sees "CREATE,ISDIR watched/made"
    rm watched/dir/moved
    sees "DELETE watched/dir/moved"
    rmdir watched/made
    sees "DELETE,ISDIR watched/made"
    kill $watcher
    wait $watcher || true
    check "no more than that" [ $(lines $OUTSIDE/events) -lt 30 ]
}
