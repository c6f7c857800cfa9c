# The manifest of the reiserfs on vda, as this kernel shows it, goes to vdb: its length, then it.
# A mount that writes gives an old root a hidden directory.
mount_it ,noatime${P:+,ro}
manifest /mnt > /tmp/manifest || { echo "FAILED manifest"; exit 1; }
check "unmount" umount /mnt
wc -c < /tmp/manifest | cat - /tmp/manifest | dd of=/dev/vdb bs=64k 2> /dev/null
sync
