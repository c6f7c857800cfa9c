# Fills a directory of a reiserfs, in the guest or on this machine, by busybox's sh: SOURCE is
# busybox, of which files are made, FILES says how many small ones there are.
bytes() { head -c $(($1 + $2)) $SOURCE | tail -c $2; }
contents() (
    cd "$1" || exit 1
    mkdir kinds tails names deep sparse changed
    ln -s /no/where kinds/dangling
    ln -s "$(printf '%0250d' 7)/$(printf '%0100d' 8)" kinds/long
    echo linked > kinds/one; ln kinds/one kinds/two; ln kinds/one deep/three
    mknod kinds/fifo p; mknod kinds/null c 1 3; mknod kinds/disk b 259 70000
    : > kinds/empty
    echo set > kinds/setuid; chmod 4755 kinds/setuid; chmod 1777 names
    for n in 1 7 100 487 488 511 512 513 1023 1025 2047 3500 4047 4048 4049 4095 4096 4097 5000 8191 8193 9000 12300 16383 16385 20001; do
        bytes $n $n > tails/$n
    done
    bytes 0 3000 > tails/appended; bytes 3000 3000 >> tails/appended
    bytes 0 30000 > tails/truncated; truncate -s 9001 tails/truncated
    bytes 0 100 > tails/extended; truncate -s 50000 tails/extended
    n=$(printf '%0255d' 3)
    echo longest > names/$n
    echo bytes > "names/$(printf 'caf\351\377')"
    echo space > "names/a b"; echo dash > names/-x; echo quote > "names/it's"
    d=deep; for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do d=$d/$n; mkdir $d; done; echo bottom > $d/file
    dd if=$SOURCE of=sparse/holes bs=4096 count=2 seek=3 2> /dev/null
    dd if=$SOURCE of=sparse/holes bs=1000 count=1 seek=300 conv=notrunc 2> /dev/null
    chown 70000:80000 kinds/one
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
    touch -d "1971-02-03 04:05:06" kinds/empty; touch -d "2037-12-31 23:59:59" kinds/two
    mkdir many
    i=0
    while [ $i -lt $FILES ]; do
        [ $((i % 200)) = 0 ] && mkdir many/$i && d=many/$i
        bytes $i $((i * 37 % 6000)) > $d/file$i
        i=$((i + 1))
    done
)
# Names and tails come and go, a file without a name is open; until the end of what it runs on.
change() (
    cd "$1" || exit 1
    echo open > changed/open; exec 3< changed/open; rm changed/open
    echo CHANGING
    i=0
    while :; do
        bytes $i $((i * 41 % 9000)) > changed/$i || exit 1
        [ $((i % 3)) = 0 ] && mv changed/$i "changed/moved to $i"
        [ $i -ge 40 ] && rm -f changed/$((i - 40))
        [ $((i % 10)) = 0 ] && sync
        i=$((i + 1))
    done
)
