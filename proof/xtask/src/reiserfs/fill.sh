# Fills a new reiserfs. OPTIONS are those of its mount, ENDING is "unmount", or "killed" for a tree
# that is still being changed.
mount_it
said=$(contents /mnt 2>&1) && [ -z "$said" ] || { echo "FAILED fill: $(echo $said | head -c 500)"; exit 1; }
echo "good filled"
sync
case $ENDING in
    killed) change /mnt;;
    *)
        for i in 3 17 100 150; do rm -f /mnt/${P}many/${P}0/${P}file$i; done
        check "unmount" umount /mnt;;
esac
