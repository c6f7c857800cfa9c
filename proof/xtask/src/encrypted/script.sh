# The tests of encrypted images; the program has the name that cargo gave it.
mount -t tmpfs tmpfs /tmp
tests() { /bin/it-* encrypted_with_key --test-threads=1 --nocapture > /tmp/told 2>&1 || { tail -n 5 /tmp/told; return 1; }; }
check "the tests" tests
for name in $(sed -n 's/^test encrypted_with_key::\([a-z_]*\) .*/\1/p' /tmp/told); do echo "good $name"; done
for modes in "(5, 6)" "(9, 9)"; do refused "modes $modes are there" grep -F "Policy { modes: $modes" /tmp/told; done
others() { ! grep -F "passed over" /tmp/told | grep -vF -e "Policy { modes: (1, 10)" -e "the kernel has no SM4"; }
check "only HCTR2 and SM4 are passed over" others
