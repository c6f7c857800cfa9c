# The manifest of the reiserfs on vda, as this kernel shows it, goes to vdb: its length, then it.
mount -t reiserfs -o noatime,user_xattr,acl,attrs /dev/vda /mnt || { echo "FAILED mount"; exit 1; }
manifest /mnt > /tmp/manifest || { echo "FAILED manifest"; exit 1; }
check "unmount" umount /mnt
wc -c < /tmp/manifest | cat - /tmp/manifest | dd of=/dev/vdb bs=64k 2> /dev/null
sync
