# PostgreSQL, as its own user: pgbench while the first process of the database is killed, and while
# the server of the mount is. What pgbench was told as committed must be there, and the balances
# must be the sums of the changes.
# A version may be there without its server.
BIN=$(dirname "$(ls /usr/lib/postgresql/*/bin/initdb | sort -V | tail -n 1)")
DATA=$PLACE/data
export PGHOST=$OUTSIDE PGDATABASE=postgres PGUSER=postgres PGCONNECT_TIMEOUT=20
# Shared memory of a database that was killed goes with this script.
mount -t tmpfs tmpfs /dev/shm
chmod 1777 /dev/shm
PATH=$BIN:$PATH
as_user() { setpriv --reuid postgres --regid postgres --clear-groups -- "$@"; }
# The same, in the place of a shell in the background, whose number is then the program's.
become_user() { exec setpriv --reuid postgres --regid postgres --clear-groups -- "$@"; }
sql() { psql -X -A -t -q -v ON_ERROR_STOP=1 -c "$1"; }
# No process of the database is left.
is_gone() {
    for exe in /proc/[0-9]*/exe; do
        if [ "$(readlink $exe)" = $BIN/postgres ]; then return 1; fi
    done
}
rows() { sql "select count(*) from pgbench_history"; }

start() {
    check "no database runs" soon is_gone
    become_user postgres -D $DATA -c listen_addresses= -c unix_socket_directories=$OUTSIDE \
        >> $OUTSIDE/messages 2>&1 &
    database=$!
    soon pg_isready -q || fail "the database starts" $OUTSIDE/messages
}
stop() {
    kill -INT $database
    check "the database ends" wait $database
}

# A load without end.
bench() {
    before=$(rows)
    echo $before > $OUTSIDE/before
    pgbench -n -c 4 -j 2 -T 600 > $OUTSIDE/bench 2>&1 &
    bench=$!
    soon has_worked || fail "pgbench works" $OUTSIDE/bench
}
has_worked() { [ $(rows) -ge $((before + 300)) ]; }

recovered() {
    start
    said=$(sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' $OUTSIDE/bench)
    check "pgbench says how many" [ "${said:-0}" -gt 0 ]
    check "$said transactions are there" [ $(rows) -ge $(($(cat $OUTSIDE/before) + said)) ]
    sound
}

sound() {
    changes=$(sql "select coalesce(sum(delta), 0) from pgbench_history")
    for of in a:accounts b:branches t:tellers; do
        balance=$(sql "select sum(${of%:*}balance) from pgbench_${of#*:}")
        check "balance of ${of#*:}" same $balance $changes
    done
    # With the heap against its indexes.
    long "pg_amcheck" pg_amcheck --all --install-missing --heapallindexed --parent-check
    long "pg_dump" pg_dump -f $OUTSIDE/dump
    check "its accounts" [ $(lines $OUTSIDE/dump) -ge $((100000 * SCALE)) ]
}

work() {
    chmod 755 $PLACE
    chown postgres $OUTSIDE
    install -d -o postgres -m 700 $DATA
    long "initdb" as_user initdb -D $DATA --auth trust --data-checksums -U postgres
    start
    long "pgbench -i" pgbench -i -q -s $SCALE
    long "pgbench" pgbench -c 4 -j 2 -T $SECONDS_OF_BENCH
    sound
    for time in 1 2; do
        bench
        kill -9 $database
        wait $database || true
        wait $bench || true
        recovered
    done
    stop
}

server_killed() {
    start
    bench
    ready
    wait $bench || true
    kill -9 $database
}

after() {
    recovered
    stop
    long "pg_checksums" as_user pg_checksums --check -D $DATA
}
