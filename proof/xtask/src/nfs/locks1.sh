# The server. It dies without a word and comes back when guest 3 says so, and ends when both have
# unmounted.
finefs mkfs --size 32m /tmp/image > /dev/null || echo "FAILED mkfs"
serve() { finefs serve -f --nfs $SERVER:2049 --rpcbind serve --grace 20 --lock-state /tmp/state --squash none /tmp/image > /dev/null & }
serve
for what in restart unmounted unmounted; do
    nc -l -p 9999 < /dev/null > /dev/null
    echo "good $what"
    [ $what = restart ] && { kill -9 $!; wait $!; serve; }
done
kill $!
wait $! || echo "FAILED the server's end"
