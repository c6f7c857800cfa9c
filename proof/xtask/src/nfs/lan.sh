#!/bin/busybox sh
# The first process of a guest of the network that guests make among themselves: see
# proof/xtask/src/nfs/lan.rs. The kernel's command line says which one it is.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
while read module; do insmod /modules/$module || echo "FAILED insmod $module"; done < /modules/order
NUMBER=$(sed -n 's/.*guest=\([0-9]*\).*/\1/p' /proc/cmdline)
export NUMBER SERVER=192.168.77.1
hostname guest$NUMBER
ip link set lo up
ip link set eth0 up
ip addr add 192.168.77.$NUMBER/24 dev eth0
sh /script$NUMBER || echo "FAILED script"
echo FINISHED
poweroff -f
