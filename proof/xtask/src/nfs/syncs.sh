# Writes and syncs while the server dies and comes back. What was synced is noted here.
attach
cd /mnt
mkdir synced
round=0
while [ $round -lt $KILLS ]; do
    echo "ROUND $round"
    i=0
    start=$(date +%s)
    # Longer than the server lives.
    while [ $(($(date +%s) - start)) -lt 12 ]; do
        head -c $((i * 700 + 1)) /bin/busybox > synced/$round.$i && sync synced/$round.$i && echo "$round.$i $((i * 700 + 1))" >> /tmp/noted
        ln synced/$round.$i synced/link && mv synced/link synced/last || { echo "FAILED link"; exit 1; }
        i=$((i + 1))
    done
    check "round $round" [ $i -gt 2 ]
    round=$((round + 1))
done
# Unstable writes that a dead server had are sent again.
cd /
umount /mnt
attach
cd /mnt
check "all is noted" [ -s /tmp/noted ]
while read name size; do
    [ "$(md5sum < synced/$name)" = "$(head -c $size /bin/busybox | md5sum)" ] || { echo "FAILED $name is not as it was synced"; exit 1; }
done < /tmp/noted
check "$(wc -l < /tmp/noted) files are as they were synced" true
check "as many names" same "$(ls synced | grep -v last | wc -l)" "$(wc -l < /tmp/noted)"
cd /
check "unmount" umount /mnt
