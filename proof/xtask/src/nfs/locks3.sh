attach
see held
exec 3<> /mnt/file
refused "a lock of guest 2" flock -n 3
show refused
# Granted by a call of the server: by asking again it would take 30 seconds.
begin=$(date +%s)
check "a lock that is waited for" flock 3
end=$(date +%s)
check "after it was free" [ -e /mnt/shown-unlocked -o $((end - begin)) -ge 2 ]
check "and soon after, in $((end - begin)) s" [ $((end - begin)) -lt 25 ]
show granted
see checked
see ready
exec 4<> /mnt/other
refused "a lock before the restart" flock -n 4
tell
# Waits for the end of the grace period, in which guest 2 gets its lock again.
begin=$(date +%s)
refused "a lock that was kept over the restart" flock -n 4
check "after the grace period, $(($(date +%s) - begin)) s" true
# Ours was kept as well.
check "our own lock" flock -n 3
show over
see free
check "a lock that is free" flock 4
show end
exec 3>&- 4>&-
leave
