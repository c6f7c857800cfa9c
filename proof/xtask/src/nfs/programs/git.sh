# git finds its own programs and nobody's settings.
export HOME=/tmp GIT_CONFIG_NOSYSTEM=1 GIT_EXEC_PATH=/bin GIT_AUTHOR_DATE="2001-02-03T04:05:06Z"
export GIT_COMMITTER_DATE="$GIT_AUTHOR_DATE"
for name in upload-pack receive-pack; do ln -s git /bin/git-$name; done
git config --global user.name guest
git config --global user.email guest@localhost
git config --global gc.auto 0
git config --global maintenance.auto false
sound() { check "$1: every object" git -C /mnt/$1 fsck --full --strict; check "$1: nothing has changed" same "$(git -C /mnt/$1 status --porcelain)" ""; }

attach
check "clone" git clone -q /etc/repository.bundle /mnt/first
sound first
check "its files" same "$(git -C /mnt/first ls-files | wc -l)" $FILES
check "clone of the clone" git clone -q --no-hardlinks /mnt/first /mnt/second
sound second
umount /mnt
attach
sound first
cd /mnt/second
check "move and remove" sh -c 'git mv $(git ls-files | head -n 1) moved && git rm -q $(git ls-files | tail -n 20)'
check "change" sh -c 'for file in $(git ls-files | head -n 50); do echo more >> $file; done'
check "commit" git commit -q -a -m changed
check "pack" git gc -q --prune=now
sound second
cd /
check "pull" git -C /mnt/first pull -q --ff-only /mnt/second main
check "the same tree" same "$(git -C /mnt/first rev-parse HEAD)" "$(git -C /mnt/second rev-parse HEAD)"
check "checkout of before" git -C /mnt/first checkout -q HEAD^
sound first
umount /mnt
attach
sound first
sound second
check "unmount" umount /mnt
