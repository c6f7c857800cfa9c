"""ext2, ext3 and ext4 images in a program, without a mount and without root.

>>> import finefs
>>> finefs.build("disk.img", ["rootfs/"], free=100 << 20)
>>> with finefs.Image("disk.img", "r+") as image:
...     image.mkdir("/srv")
...     with image.open("/srv/motd", "w") as motd:
...         motd.write("hello\\n")
...     for directory, subdirectories, files in image.walk("/etc"):
...         print(directory, len(files))

An image is used as the module ``os`` is; errors are ``OSError``. Calls release the interpreter's
lock, so threads run side by side. Who opens an image acts as its superuser. Paths start at the
image's root, with or without a leading slash.
"""

import json as _json
import os as _os

from . import _finefs
from ._finefs import __version__
from ._image import DirEntry, File, Image

__all__ = ["DirEntry", "File", "Image", "build", "memory", "mkfs", "__version__"]


def memory(size):
    """A file system in memory, of at most ``size`` bytes, gone when it is closed."""
    return Image("memory", "r+", memory=size)


def build(image, sources, **options):
    """Builds an image of directories, tar archives and container images, later ones over earlier
    ones; a dict says what was made.

    ``size`` in bytes, or ``free`` bytes more than the files need; ``owner`` and ``root_owner`` as
    (uid, gid); ``fs_type``, ``label``, ``seed``; ``force`` replaces what is there; ``jobs`` threads.
    The same files make the same bytes.
    """
    if isinstance(sources, (str, bytes, _os.PathLike)):
        sources = [sources]
    return _json.loads(_finefs.build(image, list(sources), **options))


def mkfs(image, size, **options):
    """Makes an empty file system in a new, sparse file of ``size`` bytes; a dict says what was made.

    ``fs_type`` (ext4), ``label``, ``seed``.
    """
    return _json.loads(_finefs.mkfs(image, size, **options))
