# A tree, made here.
mkdir -p /tmp/tree/a/b/c /tmp/tree/empty
cp /bin/busybox /tmp/tree/a/
head -c 100000 /bin/busybox > /tmp/tree/a/b/part
: > /tmp/tree/a/b/nothing
ln -s ../part /tmp/tree/a/b/c/link
ln -s /no/where /tmp/tree/dangling
ln /tmp/tree/a/b/part /tmp/tree/a/second
mknod /tmp/tree/fifo p
mknod /tmp/tree/null c 1 3
chmod 4711 /tmp/tree/a/busybox
chown 1000:100 /tmp/tree/a/b/nothing
chmod 1777 /tmp/tree/empty

attach
check "copy in" cp -a /tmp/tree /mnt/tree
check "checksums" same "$(sums /mnt/tree)" "$(sums /tmp/tree)"
check "shape" same "$(shape /mnt/tree)" "$(shape /tmp/tree)"
umount /mnt
attach noac
check "checksums of another mount" same "$(sums /mnt/tree)" "$(sums /tmp/tree)"
check "shape of another mount" same "$(shape /mnt/tree)" "$(shape /tmp/tree)"
check "copy out" cp -a /mnt/tree /tmp/back
check "checksums of the copy" same "$(sums /tmp/back)" "$(sums /tmp/tree)"
umount /mnt
attach
cd /mnt
check "tar in" sh -c '/bin/tar cf - -C /tmp tree | /bin/tar xpf - -C /mnt/tree/empty'
check "checksums of tar" same "$(sums /mnt/tree/empty/tree)" "$(sums /tmp/tree)"
check "shape of tar" same "$(shape /mnt/tree/empty/tree)" "$(shape /tmp/tree)"
check "an archive here" /bin/tar cf archive.tar -C tree/empty tree
check "the archive and its tree" /bin/tar df archive.tar -C /tmp
check "tar out" sh -c 'mkdir /tmp/untarred && /bin/tar xpf archive.tar -C /tmp/untarred'
check "checksums of what is out" same "$(sums /tmp/untarred/tree)" "$(sums /tmp/tree)"
check "shape of what is out" same "$(shape /tmp/untarred/tree)" "$(shape /tmp/tree)"
check "remove a tree" rm -r tree/empty
refused "it is gone" ls tree/empty

echo one > one; echo two > two; mkdir dir
check "rename over" sh -c 'mv -f one two && [ "$(cat two)" = one ]'
check "link count" sh -c 'ln two three && [ "$(stat -c %h two)" = 2 ]'
check "rename into" sh -c 'mv three dir && [ -f dir/three ] && [ ! -e three ]'
refused "remove a full directory" rmdir dir
check "rename a directory" sh -c 'mkdir dir/sub && mv dir other && [ -d other/sub ]'
refused "rename into itself" mv other other/sub/
check "chmod" sh -c 'chmod 640 two && [ "$(stat -c %a two)" = 640 ]'
check "times" sh -c 'touch -d "2020-01-02 03:04:05" two && [ "$(stat -c %Y two)" = 1577934245 ]'
check "append" sh -c 'echo more >> two && [ "$(cat two)" = "one
more" ]'
check "truncate" sh -c 'truncate -s 2 two && [ "$(cat two)" = on ]'
check "exclusive create" sh -c '(set -C; echo a > fresh) && ! (set -C; echo b > fresh) && [ "$(cat fresh)" = a ]'
check "space" sh -c 'df . | grep -q 10.0.2.2'

# MANY names, and a file of BIG_MIB; both are set before.
mkdir many
check "$MANY files" sh -c "i=0; while [ \$i -lt $MANY ]; do : > many/file\$i; i=\$((i+1)); done"
check "$MANY names" same "$(ls many | wc -l)" $MANY
echo 3 > /proc/sys/vm/drop_caches
check "$MANY names read again" same "$(ls many | sort | uniq | wc -l)" $MANY
# It removes while it reads the directory, which must then be empty.
check "names under removal" rm -r many
refused "they are gone" ls many

BYTES=$((BIG_MIB * 1048576))
check "$BIG_MIB MiB" sh -c "i=0; while [ \$i -lt $BIG_MIB ]; do cat /bin/busybox; i=\$((i+1)); done | head -c $BYTES > /tmp/big; cp /tmp/big big && sync"
echo 3 > /proc/sys/vm/drop_caches
check "$BIG_MIB MiB read again" same "$(md5sum < big)" "$(md5sum < /tmp/big)"
MIDDLE=$((BIG_MIB * 500))
check "a part of it" dd if=/bin/busybox of=big bs=1000 count=3 seek=$MIDDLE conv=notrunc
dd if=/bin/busybox of=/tmp/big bs=1000 count=3 seek=$MIDDLE conv=notrunc 2> /dev/null
check "the part" same "$(dd if=big bs=1000 skip=$MIDDLE count=3 2> /dev/null | md5sum)" "$(dd if=/bin/busybox bs=1000 count=3 2> /dev/null | md5sum)"
check "the size" same "$(stat -c %s big)" $BYTES
sync
echo 3 > /proc/sys/vm/drop_caches
check "the whole with the part" same "$(md5sum < big)" "$(md5sum < /tmp/big)"
rm -f /tmp/big big

echo kept > open
exec 3< open
rm open
check "removed while open" same "$(cat <&3)" kept
exec 3<&-
check "nothing is left of it" same "$(ls -a | grep -c nfs0)" 0
cd /
check "unmount" umount /mnt
