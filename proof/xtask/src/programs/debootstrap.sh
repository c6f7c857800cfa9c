# debootstrap of the machine's Debian from where its apt takes packages, and dpkg in there.
. /etc/os-release
export DEBIAN_FRONTEND=noninteractive
SYSTEM=$PLACE/system
inside() { chroot $SYSTEM "$@"; }

work() {
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
        awk -v release="${VERSION_CODENAME:-}" '$2 == release { print $1; exit }')
    [ -n "$mirror" ] || skip "apt has no source of a release '${VERSION_CODENAME:-}'"
    long "debootstrap" debootstrap --variant=minbase $VERSION_CODENAME $SYSTEM $mirror
    check "audit" silent inside dpkg --audit
    check "files of all packages" silent inside dpkg --verify
    (cd $OUTSIDE && apt-get download -q hello) > $OUTSIDE/log 2>&1
    cp $OUTSIDE/hello_*.deb $SYSTEM/hello.deb
    long "dpkg -i" inside dpkg -i /hello.deb
    check "its program" same "$(inside hello)" "Hello, world!"
    check "audit after it" silent inside dpkg --audit
    long "dpkg -r" inside dpkg -r hello
    long "dpkg -i again" inside dpkg -i /hello.deb
}

again() {
    check "audit after another mount" silent inside dpkg --audit
    check "files after another mount" silent inside dpkg --verify
    check "the program after another mount" same "$(inside hello)" "Hello, world!"
    check "it can be removed" rm -r $SYSTEM
}
