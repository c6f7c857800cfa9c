"""What becomes of an image that is closed."""

import errno
import os

import finefs


def descriptors_of(path):
    """How many descriptors of this process lead to a file."""
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return sum(os.path.exists(link) and os.path.samefile(link, path) for link in links)


def fails(number, call, *args):
    try:
        call(*args)
    except OSError as error:
        return error.errno == number
    return False


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
