# sqlite3 in WAL mode, whose memory-mapped index lies in the mount too: a client that is killed, and
# a server. Each transaction writes to two tables and is told outside once it is committed.
COMMITTED=$OUTSIDE/committed
sql() { sqlite3 -batch -bail db "$@"; }

begin() {
    check "WAL" same "$(sql 'pragma journal_mode = wal')" wal
    check "tables" sql "create table a(n integer primary key, data blob);
                        create table b(n integer primary key, size int, data blob);
                        create index by_size on b(size)"
    : > $COMMITTED
}

# Transactions without end, in a process whose number is in writer.
insert() {
    first=$(sql "select coalesce(max(n), 0) + 1 from a")
    rm -f $OUTSIDE/statements
    mkfifo $OUTSIDE/statements
    awk -v n=$first 'BEGIN {
        for (;; n++) {
            printf "begin immediate; insert into a values(%d, randomblob(%d));", n, 100 + n % 3000
            printf "insert into b select n, length(data), data from a where n = %d; commit;", n
            printf "select %d;\n", n
        }
    }' > $OUTSIDE/statements &
    stdbuf -oL sqlite3 -batch -bail -cmd "pragma synchronous = full" db \
        < $OUTSIDE/statements >> $COMMITTED 2> $OUTSIDE/said &
    writer=$!
    enough=$(($(lines $COMMITTED) + 150))
    soon has_committed || fail "it commits" $OUTSIDE/said
}
has_committed() { [ $(lines $COMMITTED) -ge $enough ]; }

client_killed() {
    for time in 1 2 3; do
        insert
        kill -9 $writer
        wait $writer || true
        sound
    done
}

server_killed() {
    insert
    ready
    wait $writer || true
}

sound() {
    last=$(tail -n 1 $COMMITTED)
    check "integrity" same "$(sql 'pragma integrity_check')" ok
    count=$(sql "select count(*) from a")
    check "$last transactions are there" [ "$count" -ge "$last" ]
    check "and all before the last" same "$(sql 'select max(n) from a')" $count
    check "both tables have them" same "$(sql 'select count(*) from b')" $count
    check "none in part" same "$(sql 'select count(*) from a join b using (n)
        where a.data is b.data and length(a.data) is size')" $count
    check "the journal is WAL" same "$(sql 'pragma journal_mode')" wal
}
