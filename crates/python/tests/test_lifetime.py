"""What becomes of an image that is closed, forgotten, or inherited by the child of a fork."""

import errno
import os
import signal
import sys
import warnings

import finefs
import pytest
from finefs.fsspec import FinefsFileSystem


def descriptors_of(path):
    """How many descriptors of this process lead to a file."""
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return sum(os.path.exists(link) and os.path.samefile(link, path) for link in links)


def in_child(check):
    """Whether `check` is true in the child of a fork."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(120)
            status = 0 if check() else 1
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def fails(number, call, *args):
    try:
        call(*args)
    except OSError as error:
        return error.errno == number
    return False


def test_close_writes_what_files_have_in_their_buffers(disk):
    with finefs.Image(disk, "r+") as image:
        text, both, closed = image.open("t", "w"), image.open("b", "w+b"), image.open("c", "wb")
        text.write("text")
        both.write(b"both")
        closed.write(b"closed")
        closed.close()
        parted = image.open("p", "w")
        parted.write("parted")
        buffer = parted.detach()
    assert not buffer.closed
    with finefs.Image(disk) as image:
        found = image.read_many(["t", "b", "c", "p"])
    assert found == [b"text", b"both", b"closed", b"parted"]


def test_close_tells_what_files_cannot_write():
    image = finefs.memory(1 << 20)
    file, other = image.open("f", "wb", 8 << 20), image.open("g", "wb")
    file.write(b"x" * (4 << 20))
    with pytest.raises(OSError) as told:
        image.close()
    assert told.value.errno == errno.ENOSPC and image.closed
    image.close()
    other.write(b"late")
    with pytest.raises(OSError) as told:
        other.flush()
    assert told.value.errno == errno.EIO


def test_a_closed_image_keeps_nothing_open(disk):
    image = finefs.Image(disk, "r+")
    file = image.open("f", "wb")
    assert descriptors_of(disk) > 0
    image.close()
    for call, *args in ((image.stat, "/"), (image.sync,), (image.statvfs,), (image.open, "f"),
                        (image.extract, "/", "/no/where"), (image.add, "/dev/null", "null")):
        assert fails(errno.EIO, call, *args), call
    with finefs.Image(disk, "r+") as other:
        other.write_bytes("g", b"")
    file.close()
    assert descriptors_of(disk) == 0


def test_an_image_that_nobody_closes_is_written(disk):
    image = finefs.Image(disk, "r+")
    image.write_bytes("f", b"written")
    file = image.open("g", "wb")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        del image
        assert [warning.category for warning in told] == [ResourceWarning]
        assert "unclosed <finefs.Image" in str(told.pop().message)
        file.write(b"by a file that is still open")
        file.close()
        finefs.memory(1 << 20).close()
        assert not told
    del file
    with finefs.Image(disk, "r+") as image:
        assert image.read_many(["f", "g"]) == [b"written", b"by a file that is still open"]


def test_an_image_that_nobody_closes_tells_its_error(monkeypatch):
    def sync():
        raise OSError(errno.EIO, "the device is gone")

    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: told.append(found.exc_value.errno))
    image = finefs.memory(1 << 20)
    image.sync = sync
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        del image
    assert told == [errno.EIO]


def test_the_child_of_a_fork_leaves_the_image_alone(disk):
    def check():
        calls = (file.flush, lambda: file.raw.truncate(0), image.close)
        return all(fails(errno.EIO, call) for call in calls)

    with finefs.Image(disk, "r+") as image:
        file = image.open("f", "wb")
        file.write(b"once")
        assert in_child(check)
        assert not image.closed
        file.close()
        assert image.read_bytes("f") == b"once"


def test_the_child_of_a_fork_opens_images_of_its_own(disk):
    def check():
        own = FinefsFileSystem(str(disk))
        return own.image is not files.image and own.cat("/f") == b"data"

    with finefs.Image(disk, "r+") as image:
        image.write_bytes("f", b"data")
    files = FinefsFileSystem(str(disk))
    assert in_child(check)
    assert FinefsFileSystem(str(disk)).image is files.image
    files.close()


def test_images_are_told_apart():
    with finefs.memory(1 << 20) as one, finefs.memory(1 << 20) as other:
        assert repr(one) != repr(other) and "'memory'" in repr(one)
        assert " closed" not in repr(one)
    assert " closed" in repr(one)
