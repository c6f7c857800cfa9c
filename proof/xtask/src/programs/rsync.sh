# rsync: a tree with hard links, ACLs, extended attributes, holes, devices and odd names, copied
# into the mount, and rsync's own judgement of what is different then.
TREE=$OUTSIDE/tree
COPY=$PLACE/copy
sync() { rsync -aHAXS --numeric-ids --delete "$@"; }
# Nothing is to be done.
equal() { title=$1; shift; check "$title" silent sync --itemize-changes "$@"; }

make_tree() {
    mkdir $TREE
    cd $TREE
    for dir in a b c/d/e; do
        mkdir -p $dir
        for number in $(seq 60); do
            head -c $((number * 997)) /dev/urandom > $dir/file$number
            touch -d "2001-02-03 04:05:06.$number" $dir/file$number
        done
        chmod 640 $dir/file1 $dir/file2
        chown 1234:4321 $dir/file2 $dir/file3
        chmod 4711 $dir/file3
        ln $dir/file4 $dir/link4
        ln $dir/file5 other5-${dir%%/*}
        ln -s file6 $dir/symlink
        setfattr -n user.short -v value $dir/file7
        setfattr -n user.long -v $(head -c 1500 /dev/zero | tr '\0' x) $dir/file8
        setfattr -n trusted.proof -v 0x00ff $dir/file9
        setfattr -n security.capability -v 0x0100000200040000000000000000000000000000 $dir/file10
        setfacl -m u:1234:rwx,g:4321:r,m::rx $dir/file11
        setfacl -d -m u:1234:rwx $dir
        mkdir $dir/inherited
    done
    truncate -s 200M hole
    printf end | dd of=hole bs=1 seek=100M conv=notrunc status=none
    mkfifo fifo
    mknod null c 1 3
    ln -s /nowhere/$(head -c 900 /dev/zero | tr '\0' n) far
    name=$(printf 'new\nline \303\244 *')
    echo named > "$name"
    chmod 1777 b
    touch -h -d 1999-12-31 far
    mkdir -m 500 closed
}

work() {
    (make_tree)
    long "copy" sync $TREE/ $COPY/
    equal "again: nothing is transferred" $TREE/ $COPY/
    equal "nor by checksums" --checksum $TREE/ $COPY/
    check "holes stay holes" [ $(stat -c %b $COPY/hole) -lt 1000 ]
    check "hard links stay hard links" [ $COPY/a/file4 -ef $COPY/a/link4 ]
    check "diff" diff -r --no-dereference -x fifo -x null $TREE $COPY
    # And something changes.
    rm -r $TREE/c/d $TREE/b/file4
    mv $TREE/a/file20 $TREE/a/moved20
    echo more >> $TREE/a/file21
    setfacl -b $TREE/a/file11
    setfattr -x user.short $TREE/a/file7
    chmod 600 $TREE/a/file22
    long "the changes" sync --itemize-changes $TREE/ $COPY/
    check "they are transferred" [ $(lines "$OUTSIDE/log") -gt 60 ]
    equal "again after the changes" $TREE/ $COPY/
    check "what went is gone" [ ! -e $COPY/c/d ]
}

again() {
    equal "after another mount, by checksums" --checksum $TREE/ $COPY/
    long "copy back" sync $COPY/ $OUTSIDE/back/
    equal "what came back" --checksum $TREE/ $OUTSIDE/back/
    check "it can be removed" rm -r $COPY
}
