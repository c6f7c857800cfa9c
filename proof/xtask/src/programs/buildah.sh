# buildah, whose layers lie in the mount, as overlayfs of the kernel: lower and upper ones.
command -v buildah > /dev/null || skip "buildah is not installed"
modprobe -q overlay 2> /dev/null || true
grep -qw overlay /proc/filesystems || skip "the kernel has no overlayfs"
POLICY=$OUTSIDE/policy.json
echo '{"default": [{"type": "insecureAcceptAnything"}]}' > $POLICY
export STORAGE_DRIVER=overlay BUILDAH_ISOLATION=chroot
tool() { command buildah --root $PLACE/storage --runroot $OUTSIDE/run "$@"; }
commit() { tool commit -q --signature-policy $POLICY "$@"; }
inside() { container=$1; shift; tool run $container -- /bin/busybox "$@"; }
# What the containers do.
FIRST='set -e
cd /tree
echo made > /made
/bin/busybox rm file1 file2 file3
/bin/busybox mv file4 /moved'
SECOND='set -e
cd /tree
/bin/busybox rm /made file5
echo more >> file10
/bin/busybox mkdir dir
echo x > dir/x'

work() {
    mkdir $OUTSIDE/tree
    for number in $(seq 200); do
        head -c $((number * 300)) /dev/urandom > $OUTSIDE/tree/file$number
    done
    long "from scratch" tool from --name first scratch
    check "the driver" [ -d $PLACE/storage/overlay ]
    check "copy" tool copy first $(command -v busybox) /bin/busybox
    check "copy of a tree" tool copy first $OUTSIDE/tree /tree
    long "run" inside first sh -c "$FIRST"
    check "commit" commit first proof
    check "remove" tool rm first
    # Whiteouts, and files of the lower layer that are copied up.
    check "from the image" tool from --name second --signature-policy $POLICY proof
    check "what was made" same "$(inside second cat /made)" made
    long "change" inside second sh -c "$SECOND"
    check "another layer" commit second proof-two
    long "check of the layers" layers
}

# The second image as a tree, against what is known of it.
layers() {
    mounted=$(tool mount second) &&
        [ ! -e $mounted/made ] &&
        [ ! -e $mounted/tree/file5 ] &&
        cmp $mounted/moved $OUTSIDE/tree/file4 &&
        same "$(ls $mounted/tree | wc -l)" 196 &&
        rm $OUTSIDE/tree/file[1-5] &&
        diff -r -x dir -x file10 $OUTSIDE/tree $mounted/tree &&
        tool umount second
}

again() {
    check "from the second image" tool from --name third --signature-policy $POLICY proof-two
    check "its files" same "$(inside third cat /tree/dir/x)" x
    refused "what was removed" inside third cat /made
    long "as an archive" \
        tool push -q --signature-policy $POLICY proof-two oci-archive:$OUTSIDE/archive
    check "all containers go" tool rm --all
    check "all images go" tool rmi --all
}
