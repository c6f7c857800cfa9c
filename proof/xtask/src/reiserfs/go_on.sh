# Goes on with a reiserfs that finefs wrote: removes some of it, adds to it, and is killed.
mount -t reiserfs -o "$OPTIONS" /dev/vda /mnt || { echo "FAILED mount"; exit 1; }
cd /mnt
rm -r deep many/0
for i in 1 100 511 4095 12300; do bytes $i 700 >> tails/$i; done
: > tails/5000; truncate -s 5 tails/9000; mv tails/16383 names
mkdir more; i=0
while [ $i -lt $FILES ]; do bytes $i $((i * 53 % 5000)) > more/file$i; i=$((i + 1)); done
echo "good went on"
sync
change /mnt
