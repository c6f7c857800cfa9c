# The server. It dies without a word and comes back when the guests say so, and ends when they do.
truncate -s 32m /tmp/image
finefs mkfs /tmp/image > /dev/null || echo "FAILED mkfs"
serve() { finefs serve -f --nfs $SERVER:2049 --rpcbind serve --grace 20 --lock-state /tmp/state --squash none /tmp/image > /dev/null & }
serve
for what in restart end; do
    nc -l -p 9999 < /dev/null > /dev/null
    echo "good $what"
    [ $what = restart ] && { kill -9 $!; wait $!; serve; }
done
kill $!
wait $! || echo "FAILED the server's end"
