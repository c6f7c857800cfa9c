# What the clients share: their rpcbind and monitor, and the mount.
mkdir -p /run/rpcbind
rpcbind -f &
until netstat -ltn | grep -q ':111 '; do sleep 1; done
rpc.statd -F --no-notify &
attach() { n=0; until mount -t nfs -o "vers=3,proto=tcp,port=2049,mountproto=tcp,mountport=2049,actimeo=0,addr=$SERVER" $SERVER:/ /mnt; do n=$((n+1)); [ $n -lt 120 ] || { echo "FAILED mount"; exit 1; }; sleep 1; done; }
check() { name=$1; shift; if "$@" > /tmp/out 2>&1; then echo "good $name"; else echo "FAILED $name: $(head -c 500 /tmp/out)"; exit 1; fi; }
refused() { name=$1; shift; if "$@" > /tmp/out 2>&1; then echo "FAILED $name: it was not refused"; exit 1; else echo "good $name"; fi; }
# What another guest is to see or has shown: a name in the root.
show() { : > /mnt/shown-$1; }
see() { n=0; until [ -e /mnt/shown-$1 ]; do n=$((n+1)); [ $n -lt 300 ] || { echo "FAILED to see $1"; exit 1; }; sleep 1; done; }
# Says to the guest with the server that it is time.
tell() { until nc $SERVER 9999 < /dev/null; do sleep 1; done; }
leave() { check "unmount" umount /mnt; tell; }
