# A file server's load.
attach
mkdir /mnt/dbench
dbench -c /etc/client.txt -t $TIME -D /mnt/dbench $CLIENTS > /tmp/said 2>&1 || { echo "FAILED dbench: $(tail -n 5 /tmp/said)"; exit 1; }
# Where there are no POSIX semaphores it starts its clients on a timer.
refused "an error of dbench" sh -c 'grep -v semaphore /tmp/said | grep -i "fail\|error"'
creates=$(sed -n 's/^ *NTCreateX *\([0-9]*\) .*/\1/p' /tmp/said)
check "dbench: $creates files opened by $CLIENTS clients" [ "${creates:-0}" -gt 0 ]
check "unmount" umount /mnt
