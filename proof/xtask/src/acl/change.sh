# What users of ACLs do, in the current directory, which is the root of an empty file system; each step's outcome is printed.

mkdir -m 777 work
cd work || exit 1

echo "## access ACLs of files"
echo data >file
chmod 640 file
chown 2001:3001 file
probe file
try setfacl -m u:2002:rw file
show file
probe file
try setfacl -m m::r file
show file
probe file
try setfacl -m g:3002:w,m::rwx,g::-,o::r file
show file
probe file
echo "## the mask and chmod"
try chmod 604 file
show file
try chmod 777 file
show file
probe file
try chmod g-w file
show file
try setfacl -x u:2002 file
show file
try setfacl -b file
show file
probe file
try setfacl -b file

echo "## only the owner"
try as 2002 2002 - setfacl -m u:2003:r file
try as 2001 2001 - setfacl -m u:2003:r file
try as 2002 2002 - setfacl -b file
try as 2002 2002 - getfacl -cn file
try as 2002 2002 - setfattr -n system.posix_acl_access -v 0x0200000001000600ffffffff04000400ffffffff20000000ffffffff file
show file

echo "## directories"
mkdir -m 750 dir
chown 2001:3001 dir
echo inside >dir/inside
chmod 644 dir/inside
probe dir dir/inside
try setfacl -m u:2002:x,g:3002:rwx dir
show dir
probe dir dir/inside
try setfacl -m u:2002:- dir
probe dir dir/inside
try as 2003 3002 - mv dir/inside dir/moved
try as 2002 2002 - mv dir/moved dir/inside
try as 2003 3002 - rm dir/moved

echo "## default ACLs"
try setfacl -d -m u:2002:rwx,g:3002:rx,o::- dir
show dir
for mask in 000 022 077 027; do
    umask $mask
    mkdir dir/sub$mask
    touch dir/file$mask
    mkfifo dir/fifo$mask
    mknod dir/null$mask c 1 3
    ln -s target dir/link$mask
    mkdir -m 700 dir/closed$mask
    (umask 0; install -m 4755 /dev/null dir/installed$mask)
    show dir/sub$mask dir/file$mask dir/fifo$mask dir/null$mask dir/closed$mask dir/installed$mask
    stat -c '%n %A' dir/link$mask
done
umask 022
mkdir -p dir/sub022/deep/deeper
touch dir/sub022/deep/deeper/leaf
show dir/sub022/deep dir/sub022/deep/deeper dir/sub022/deep/deeper/leaf
probe dir/sub022 dir/file022
cp /bin/true dir/program
show dir/program
echo "## a default ACL that says no more than a mode"
mkdir plain
try setfacl -d -m u::rwx,g::rx,o::- plain
show plain
touch plain/file
mkdir plain/sub
show plain/file plain/sub
umask 077
touch plain/file077
mkdir plain/sub077
show plain/file077 plain/sub077
umask 022
try setfacl -k plain
show plain
try setfacl -k plain
touch plain/after
show plain/after
mv dir/file022 plain/moved
ln dir/file000 plain/linked
cp -a dir/file077 plain/copied
cp -a dir plain/tree
show plain/moved plain/linked plain/copied plain/tree plain/tree/sub022

echo "## a set-group-ID bit"
install -m 2775 -o 2001 -g 3001 /dev/null setgid
try as 2001 2001 - setfacl -m u:2002:rwx setgid
show setgid
chmod 2775 setgid
try as 2001 2001 3001 setfacl -m u:2003:rwx setgid
show setgid
try setfacl -m u:2002:r setgid
show setgid
mkdir -m 2775 sgdir
chown 2001:3001 sgdir
try setfacl -d -m g:3002:rwx sgdir
mkdir sgdir/sub
touch sgdir/file
show sgdir sgdir/sub sgdir/file
chmod g+s sgdir
try as 2001 2001 - setfacl -m u:2002:rwx sgdir
show sgdir
chmod g+s sgdir
try as 2001 2001 - setfacl -d -m u:2002:rwx sgdir
show sgdir

echo "## a set-group-ID directory of others"
mkdir others
chown 0:3001 others
chmod 2777 others
for groups in - 3001; do
    for mask in 000 033; do
        for mode in 2775 2664 6755; do
            # The shell's tools change modes afterwards; programs may give any at once.
            name=others/$groups.$mask.$mode
            try as 2001 2001 $groups perl -e 'umask oct $ARGV[1]; sysopen my $new, $ARGV[0], 0101, oct $ARGV[2]' \
                "$name" $mask $mode
            try as 2001 2001 $groups perl -MPOSIX -e 'umask oct $ARGV[1]; mkfifo $ARGV[0], oct $ARGV[2]' \
                "$name.fifo" $mask $mode
            stat -c '%n %A %u %g' "$name" "$name.fifo"
        done
    done
    try as 2001 2001 $groups mkdir others/$groups.sub
    stat -c '%n %A %u %g' others/$groups.sub
done

echo "## a sticky directory"
mkdir sticky
chmod 1777 sticky
touch sticky/of-root
setfacl -m u:2002:rwx sticky/of-root sticky
try as 2002 2002 - rm sticky/of-root
try as 2002 2002 - mv sticky/of-root sticky/elsewhere

echo "## owners that change"
echo owned >owned
setfacl -m u:2002:rw,g:3002:r owned
chown 2002:3002 owned
show owned
probe owned

echo "## values that make no sense"
touch raw
mkdir rawdir
ln -s raw rawlink
a=system.posix_acl_access d=system.posix_acl_default
head=0x02000000
owner=01000600ffffffff group=04000400ffffffff mask=10000400ffffffff other=20000000ffffffff
user() { printf '02000600%s' "$1"; }
raw $a $head$owner$group$other raw
raw $a $head$owner$group$mask$other raw
raw $a $head$owner$(user d2070000)$group$mask$other raw
raw $a $head raw
raw $a 0x raw
raw $a 0x01000000$owner$group$other raw
raw $a 0x020000 raw
raw $a $head$owner$group raw
raw $a $head$owner$owner$group$other raw
raw $a $head$owner$(user d2070000)$group$other raw
raw $a $head$owner$(user ffffffff)$group$mask$other raw
raw $a $head$owner$(user d3070000)$(user d2070000)$group$mask$other raw
raw $a $head$owner$(user d2070000)$(user d2070000)$group$mask$other raw
raw $a $head$group$owner$other raw
raw $a ${head}01000800ffffffff$group$other raw
raw $a ${head}01000f00ffffffff$group$other raw
raw $a ${head}0100060000000000$group$other raw
raw $a ${head}03000600ffffffff$group$other raw
raw $a $head$owner$group$other$other raw
raw $a $head$owner$group${other}00 raw
raw $d $head$owner$group$other raw
raw $d $head raw
raw $d $head$owner$group$other rawdir
raw $d $head$owner$group rawdir
try setfattr -x $a raw
try setfattr -x $a raw
try setfattr -x $d raw
try setfattr -x $d rawdir
try setfattr -x $d rawdir
show raw rawdir
try setfattr -h -n $a -v $head$owner$group$other rawlink
try getfattr -h -n $a rawlink
try getfattr -n $d raw
try setfattr -n system.nothing -v 1 raw

echo "## many entries"
touch many
many=u:2002:rw
uid=10000
while [ $uid -lt 10030 ]; do
    many=$many,u:$uid:r
    uid=$((uid + 1))
done
try setfacl -m "$many" many
show many
chmod 600 many
show many
probe many
setfattr -n user.beside -v "$(head -c 300 /dev/zero | tr '\0' x)" many
show many
chmod 640 many
probe many
