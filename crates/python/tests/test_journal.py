"""An image whose journal lies on a device of its own."""

import errno
import subprocess

import finefs
import fsspec
import pytest


def test_external_journal(tmp_path):
    image, journal = tmp_path / "image", tmp_path / "journal"
    for path, size in ((image, 64 << 20), (journal, 40 << 20)):
        with open(path, "wb") as file:
            file.truncate(size)
    made = ["mkfs.reiserfs", "-q", "-f", "-j", journal, image]
    subprocess.run(made, check=True, capture_output=True)
    with pytest.raises(OSError) as told:
        finefs.Image(image, "r+")
    assert told.value.errno == errno.EROFS
    with finefs.Image(image, "r+", journal=journal) as opened:
        opened.mkdir("/d")
    files = fsspec.filesystem("finefs", image=str(image), mode="r+", journal=str(journal))
    files.pipe("/d/file", b"data")
    files.close()
    with finefs.Image(image, journal=journal) as opened:
        assert opened.read_bytes("/d/file") == b"data"
