# Fills a directory of a reiserfs, in the guest or on this machine, by busybox's sh: SOURCE is
# busybox, of which files are made, FILES says how many small ones there are. Each name begins with
# P, which is empty but for format 3.5, of which Linux 6.1 takes directories of short names for
# damaged; what that format has no room for is left out.
bytes() { head -c $(($1 + $2)) $SOURCE | tail -c $2; }
contents() (
    cd "$1" || exit 1
    for d in kinds tails names deep sparse changed; do mkdir $P$d; done
    k=${P}kinds/$P; t=${P}tails/$P; s=${P}sparse/$P
    ln -s /no/where ${k}dangling
    ln -s "$(printf '%0250d' 7)/$(printf '%0100d' 8)" ${k}long
    echo linked > ${k}one; ln ${k}one ${k}two; ln ${k}one ${P}deep/${P}three
    mknod ${k}fifo p; mknod ${k}null c 1 3; mknod ${k}disk b 259 70000
    : > ${k}empty
    echo set > ${k}setuid; chmod 4755 ${k}setuid; chmod 1777 ${P}names
    for n in 1 7 100 487 488 511 512 513 1023 1025 2047 3500 4047 4048 4049 4095 4096 4097 5000 8191 8193 9000 12300 16383 16385 20001; do
        bytes $n $n > $t$n
    done
    bytes 0 3000 > ${t}appended; bytes 3000 3000 >> ${t}appended
    bytes 0 30000 > ${t}truncated; truncate -s 9001 ${t}truncated
    bytes 0 100 > ${t}extended; truncate -s 50000 ${t}extended
    n=$(printf '%0255d' 3)
    echo longest > ${P}names/$n
    echo bytes > "${P}names/$P$(printf 'caf\351\377')"
    echo space > "${P}names/${P}a b"; echo dash > ${P}names/$P-x; echo quote > "${P}names/${P}it's"
    d=${P}deep; for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do d=$d/$P$n; mkdir $d; done; echo bottom > $d/${P}file
    dd if=$SOURCE of=${s}holes bs=4096 count=2 seek=3 2> /dev/null
    dd if=$SOURCE of=${s}holes bs=1000 count=1 seek=300 conv=notrunc 2> /dev/null
    echo first > ${P}changed/${P}first
    if [ -n "$P" ]; then
        chown 60000:65535 ${k}one
    else
        chown 70000:80000 ${k}one
        large
    fi
    touch -d "1971-02-03 04:05:06" ${k}empty; touch -d "2037-12-31 23:59:59" ${k}two
    mkdir ${P}many
    i=0
    while [ $i -lt $FILES ]; do
        [ $((i % 200)) = 0 ] && d=${P}many/$P$i && mkdir $d
        bytes $i $((i * 37 % 6000)) > $d/${P}file$i
        i=$((i + 1))
    done
)
# What format 3.5 has no room for.
large() {
    # reiserfs has a block number for each block of a hole.
    [ $(stat -f -c %s .) -lt 4096 ] || dd if=$SOURCE of=sparse/huge bs=1000 count=3 seek=2500000 2> /dev/null
    # In blocks of 512 bytes the kernel has no transactions large enough for attributes.
    if [ $(stat -f -c %s .) -gt 512 ]; then
        mkdir attributes
        cp kinds/setuid attributes/file; mkdir attributes/dir; echo more > attributes/more
        setfattr -n user.text -v hello attributes/file
        setfattr -n user.empty attributes/file
        setfattr -n trusted.secret -v 0x000102 attributes/dir
        setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 attributes/more
        setfattr -n user.long -v "0x$(bytes 0 20000 | od -An -v -tx1 | tr -d ' \n')" attributes/more
        setfacl -m u:1000:rw,g:100:r attributes/file
        setfacl -d -m u:1001:rwx attributes/dir
        chattr +A attributes/more; chattr +d attributes/dir; chattr +i attributes/file
    fi
}
# Names and tails come and go, a file without a name is open; until the end of what it runs on.
change() (
    cd "$1/${P}changed" || exit 1
    echo open > ${P}open; exec 3< ${P}open; rm ${P}open
    echo CHANGING
    i=0
    while :; do
        bytes $i $((i * 41 % 9000)) > $P$i || exit 1
        [ $((i % 3)) = 0 ] && mv $P$i "${P}moved to $i"
        [ $i -ge 40 ] && rm -f $P$((i - 40))
        [ $((i % 10)) = 0 ] && sync
        i=$((i + 1))
    done
)
# Mounts the reiserfs on vda at /mnt, with what is given beside OPTIONS. JOURNAL is the disk that its
# journal lies on, where that is another.
mount_it() { mount -t reiserfs -o "$OPTIONS${JOURNAL:+,jdev=$JOURNAL}$1" /dev/vda /mnt || { echo "FAILED mount: $(dmesg | tail -n 4 | tr '\n' ' ')"; exit 1; }; }
