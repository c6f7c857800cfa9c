# One file under random reads, writes, mappings and truncates, each checked: as mounts usually are,
# with small requests, and without caches of attributes.
seed=0
for options in "" rsize=4096,wsize=4096 noac; do
    attach $options
    seed=$((seed + 1))
    check "fsx, $OPERATIONS operations, ${options:-as usual}" \
        fsx -S $seed -N $OPERATIONS -f /etc/fsx.toml -P /tmp /mnt/file$seed
    cp /mnt/file$seed /tmp/file
    umount /mnt
    attach
    check "the same after another mount" cmp /tmp/file /mnt/file$seed
    umount /mnt
done
