# git, in PLACE: BUNDLE is a repository of FILES files. Nobody's settings count but these.
export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_DATE="2001-02-03T04:05:06Z"
export GIT_COMMITTER_DATE="$GIT_AUTHOR_DATE"
git config --global user.name proof
git config --global user.email proof@localhost
git config --global gc.auto 0
git config --global maintenance.auto false
git config --global init.defaultBranch main
sound() {
    check "$1: every object" git -C $PLACE/$1 fsck --full --strict
    check "$1: nothing has changed" same "$(git -C $PLACE/$1 status --porcelain)" ""
}

clone() {
    check "clone" git clone -q $BUNDLE $PLACE/first
    sound first
    check "its files" same "$(git -C $PLACE/first ls-files | wc -l)" $FILES
    check "clone of the clone" git clone -q --no-hardlinks $PLACE/first $PLACE/second
    sound second
}

change() {
    sound first
    cd $PLACE/second
    check "move" git mv $(git ls-files | head -n 1) moved
    check "remove" git rm -q $(git ls-files | tail -n 20)
    for file in $(git ls-files | head -n 50); do echo more >> $file; done
    check "commit" git commit -q -a -m changed
    check "pack" git gc -q --prune=now
    sound second
    cd /
    check "pull" git -C $PLACE/first pull -q --ff-only $PLACE/second main
    check "the same tree" same \
        "$(git -C $PLACE/first rev-parse HEAD)" "$(git -C $PLACE/second rev-parse HEAD)"
    check "checkout of before" git -C $PLACE/first checkout -q HEAD^
    sound first
}

# What needs hard links, and other things that NFS's guest has no time for.
more() {
    check "clone by hard links" git clone -q --local $PLACE/second $PLACE/third
    check "a worktree" git -C $PLACE/third worktree add -q $PLACE/fourth HEAD^
    sound third
    sound fourth
    cd $PLACE/fourth
    for file in $(git ls-files | head -n 9); do echo x > $file; done
    check "stash" git stash -q
    cd /
    sound fourth
    check "all packed anew" git -C $PLACE/third gc -q --aggressive --prune=now
    sound third
}

look() {
    for each in $PLACE/*/.git; do
        each=${each%/.git}
        sound ${each##*/}
    done
}
