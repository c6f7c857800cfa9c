# How fast this kernel's reiserfs (vda) and ext4 (vdb) are, by turns: lines "speed PROGRAM FILE-SYSTEM
# NUMBER", of dbench in MB/s for one client, of PostMark in transactions a second. ROUNDS, SECONDS of
# dbench and TRANSACTIONS say how much.
centiseconds() { cut -d ' ' -f 1 /proc/uptime | tr -d .; }
measure() {
    mount -t $1 -o noatime $2 /mnt || { echo "FAILED mount $1"; exit 1; }
    rate=$(dbench -c /client.txt -t $SECONDS -D /mnt 1 | sed -n 's/^Throughput \([0-9.]*\) .*/\1/p')
    [ -n "$rate" ] || { echo "FAILED dbench on $1"; exit 1; }
    echo "speed dbench $1 $rate"
    mkdir /mnt/postmark
    printf 'set location /mnt/postmark\nset number 500\nset transactions %s\nrun\nquit\n' $TRANSACTIONS > /tmp/load
    sync
    from=$(centiseconds)
    postmark /tmp/load > /tmp/out || { echo "FAILED postmark on $1"; exit 1; }
    sync
    echo "speed PostMark $1 $((TRANSACTIONS * 100 / ($(centiseconds) - from)))"
    rm -r /mnt/*
    check "unmount $1" umount /mnt
}
i=0
while [ $i -lt $ROUNDS ]; do
    measure reiserfs /dev/vda
    measure ext4 /dev/vdb
    i=$((i + 1))
done
