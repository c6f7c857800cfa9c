#!/bin/busybox sh
# The first process of the guest: goes on in the file system on vda (proof/xtask/src/boot.rs).
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
# Some modules are for processors that this is not.
while read module; do insmod /modules/$module 2> /dev/null; done < /modules/order
mount -t ext4 -o ro /dev/vda /mnt || { echo "FAILED mount"; poweroff -f; }
umount /proc /sys
mount --move /dev /mnt/dev
# The firmware leaves half a line on the console.
echo > /mnt/dev/console
exec switch_root -c /dev/console /mnt /sbin/init
