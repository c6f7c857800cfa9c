# The POSIX conformance tests, whose outcomes are judged outside: those that remount read-only in a
# process each, as others may leave a file open for writing; REMOUNTS of them.
attach
mkdir /mnt/tests /tmp/other
run() {
    echo "outcome RUN"
    NO_COLOR=1 RUST_BACKTRACE=0 pjdfstest -c "$@" -p /mnt/tests -s /tmp/other > /tmp/said 2>&1
    sed 's/^/outcome /' /tmp/said
}
sed 's/allow_remount = true/allow_remount = false/' /etc/pjdfstest.toml > /tmp/no-remount.toml
run /tmp/no-remount.toml
for name in $(sed -n 's/^\([a-z0-9_:]*::erofs[a-z_]*\) .*skipped$/\1/p' /tmp/said | head -n $REMOUNTS); do
    run /etc/pjdfstest.toml --exact pjdfstest::tests::$name
done
check "unmount" umount /mnt
