# Has locks that guest 3 wants, and has one when the server dies.
attach
: > /mnt/file
exec 3<> /mnt/file
check "a lock" flock -n 3
show held
see refused
sleep 3
check "unlock" flock -u 3
show unlocked
see granted
refused "a lock of guest 3" flock -n 3
show checked
exec 4<> /mnt/other
check "a lock for the restart" flock -n 4
show ready
see over
check "unlock after the restart" flock -u 4
show free
see end
exec 3>&- 4>&-
leave
