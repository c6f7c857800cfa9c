#!/bin/bash
# The first process of the system in the image: looks at all of it, then works in it.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
check() { name=$1; shift; if said=$("$@" 2>&1); then echo "good $name"; else echo "FAILED $name: ${said:0:500}"; fi; }
refused() { name=$1; shift; if "$@" > /dev/null 2>&1; then echo "FAILED $name: it was not refused"; else echo "good $name"; fi; }
# All but the list, what is mounted over, and what mkfs makes.
shown() { find / -xdev -printf '%M %U:%G %y %p %l\n' | grep -v ' /\(proof/shape\|proc\|sys\|dev\|lost+found\) $' | sort | diff - /proof/shape; }
no_errors() { [ "$(cat /sys/fs/ext4/vda/errors_count)" = 0 ]; }

mount -t proc proc /proc
mount -t sysfs sysfs /sys
refused "read-only at first" touch /new
check "what the image shows" shown
check "contents" md5sum -c --quiet /proof/sums
check "made writable" mount -o remount,rw /
check "a copy" cp -a /usr/share /root/share
check "the copy is equal" diff -r --no-dereference /usr/share /root/share
check "links" ln /bin/bash /root/shell
check "the old is removed" rm -r /root/share
echo "written by the guest" > /note
check "no errors" no_errors
check "read-only again" mount -o remount,ro /
echo FINISHED
echo b > /proc/sysrq-trigger
sleep 60
