# What the scripts of NFS clients share; PORT is set before.
OPTIONS="vers=3,proto=tcp,port=$PORT,mountproto=tcp,mountport=$PORT,nolock,addr=10.0.2.2"
attach() { mount -t nfs -o "$OPTIONS${1:+,$1}" 10.0.2.2:/ /mnt || { echo "FAILED mount"; exit 1; }; }
