#!/bin/busybox sh
# The first process of the guest: see proof/xtask/src/guest.rs.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
while read module; do insmod /modules/$module || echo "FAILED insmod $module"; done < /modules/order
ip link set lo up
if [ -e /sys/class/net/eth0 ]; then
    ip link set eth0 up
    ip addr add 10.0.2.15/24 dev eth0
fi
# The firmware leaves half a line on the console.
echo
sh /script || echo "FAILED script"
echo FINISHED
poweroff -f
