# Goes on with a reiserfs that finefs wrote: removes some of it, adds to it, and is killed.
mount_it
cd /mnt
more=${P}many/${P}0
if [ -n "$P" ]; then
    # No directory without a name in it, see the proof.
    rm $more/${P}file1*
else
    rm -r deep $more
    more=more; mkdir more
fi
t=${P}tails/$P
for i in 1 100 511 4095 12300; do bytes $i 700 >> $t$i; done
: > ${t}5000; truncate -s 5 ${t}9000; mv ${t}16383 ${P}names
i=0
while [ $i -lt $FILES ]; do bytes $i $((i * 53 % 5000)) > $more/${P}more$i; i=$((i + 1)); done
echo "good went on"
sync
change /mnt
