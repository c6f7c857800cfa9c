"""Images to work in."""

import subprocess

import finefs
import pytest


@pytest.fixture
def disk(tmp_path):
    """The path of an empty ext4 image, which must be clean at the end."""
    path = tmp_path / "disk.img"
    finefs.mkfs(path, 600 << 20, label="disk")
    yield path
    subprocess.run(["e2fsck", "-fn", path], check=True, capture_output=True)


@pytest.fixture(params=["disk", "memory"])
def image(request):
    """An image that is open to read and write."""
    if request.param == "memory":
        opened = finefs.memory(64 << 20)
    else:
        opened = finefs.Image(request.getfixturevalue("disk"), "r+")
    with opened:
        yield opened
