"""An image that is open when a process forks stays the parent's."""

import errno
import gc
import os
import subprocess
import sys

import finefs
import pytest


def in_child(act):
    """Runs something in a forked process, which must not fail."""
    child = os.fork()
    if child == 0:
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def is_in_use(path):
    """Whether another process is kept from the image."""
    script = "import sys, finefs; finefs.Image(sys.argv[1], 'r+').close()"
    run = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True)
    assert run.returncode == 0 or "another process" in run.stderr, run.stderr
    return run.returncode != 0


def needs_recovery(path):
    shown = subprocess.run(["dumpe2fs", "-h", path], capture_output=True, text=True, check=True)
    return "needs_recovery" in shown.stdout


def test_a_forked_process_leaves_it_to_its_parent(disk):
    held = [finefs.Image(disk, "r+")]
    held[0].write_bytes("/a", b"1")
    held[0].sync()
    assert needs_recovery(disk)

    def end():
        with pytest.raises(OSError) as refused:
            held[0].close()
        assert refused.value.errno == errno.EIO

    def drop():
        held.clear()
        gc.collect()

    for act in [end, drop]:
        in_child(act)
        assert needs_recovery(disk)
        assert is_in_use(disk)
    held[0].write_bytes("/b", b"2")
    held[0].close()
    assert not is_in_use(disk)
    with finefs.Image(disk) as image:
        assert image.read_bytes("/a") + image.read_bytes("/b") == b"12"
