# Fills a new reiserfs. OPTIONS are those of its mount, ENDING is "unmount", or "killed" for a tree
# that is still being changed.
mount -t reiserfs -o "$OPTIONS" /dev/vda /mnt || { echo "FAILED mount"; exit 1; }
contents /mnt
echo "good filled"
sync
case $ENDING in
    killed) change /mnt;;
    *)
        for i in 3 17 100 150; do rm -f /mnt/many/0/file$i; done
        check "unmount" umount /mnt;;
esac
