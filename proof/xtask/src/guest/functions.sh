# What scripts share. Each check prints one line that begins with "good" or "FAILED"; what it runs
# prints to OUT.
OUT=${OUT:-/tmp/out}
check() { name=$1; shift; if "$@" > "$OUT" 2>&1; then echo "good $name"; else echo "FAILED $name: $(head -c 500 "$OUT")"; exit 1; fi; }
refused() { name=$1; shift; if "$@" > "$OUT" 2>&1; then echo "FAILED $name: it was not refused"; exit 1; else echo "good $name"; fi; }
same() { [ "$1" = "$2" ] || { echo "$1 instead of $2"; return 1; }; }
# The checksums and names of a tree.
sums() { (cd "$1" && find . -type f | sort | xargs md5sum); }
# What ls shows of a tree, without times and inode numbers.
shape() { (cd "$1" && find . | sort | xargs stat -c '%A %h %u %g %s %N' | grep -v '^d' ; cd "$1" && find . -type d | sort | xargs stat -c '%A %u %g %N'); }
