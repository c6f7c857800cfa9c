# The work of proof/xtask/src/programs/git.sh, where git finds its own programs.
export GIT_EXEC_PATH=/bin
for name in upload-pack receive-pack; do ln -s git /bin/git-$name; done
attach
clone
umount /mnt
attach
change
umount /mnt
attach
look
check "unmount" umount /mnt
