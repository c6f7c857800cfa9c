"""Images for fsspec: ``fsspec.open("finefs:///srv/disk.img:/etc/hostname")``, and with it for
pandas, dask and others.

A URL is finefs://IMAGE:/PATH, as the commands of finefs have it. ``FinefsFileSystem("disk.img")``
takes paths in the image. ``access="r+"`` lets the image be written, also as an option of a URL:
``fsspec.open(url, "wb", access="r+")``, in pandas ``storage_options={"access": "r+"}``.
"""

import atexit
import contextlib
import errno
import io
import os
import threading

from fsspec.spec import AbstractFileSystem

from . import Image
from ._image import LEADS_NOWHERE, bytes_of

_KINDS = {0o100000: "file", 0o040000: "directory", 0o120000: "link"}

# The images that this process has open by their names, with their access; under the lock. It is
# taken again where a garbage collection calls `close` of a program.
_lock = threading.RLock()
_images = {}


def _in_child_of_fork():
    """The images are the parent's, and a thread that held the lock is not here."""
    global _lock
    _lock = threading.RLock()
    _images.clear()


os.register_at_fork(after_in_child=_in_child_of_fork)


@atexit.register
def _close_all():
    """At the end of the program, so that errors are shown."""
    with contextlib.ExitStack() as closing:
        for image, _ in _images.values():
            closing.callback(image.close)


def _place(name):
    """What tells an image from others: the file, whatever path leads to it, and the partition."""
    path, at, partition = name.rpartition("@")
    if not at or "/" in partition or os.path.exists(name):
        path, partition = name, ""
    try:
        found = os.stat(path)
    except OSError:
        return name  # a URL, or nothing
    return found.st_dev, found.st_ino, partition


def _shared(name, access, journal):
    """The image of this name, which is opened unless the process has it open."""
    with _lock:
        place = _place(name)
        image, present = _images.get(place, (None, None))
        if image is None or image.closed:
            image = Image(name, access, journal=journal)
            _images[place] = image, access
        elif access == "r+" and present == "r":
            reason = "this process has it open with access \"r\": close() that file system first"
            raise OSError(errno.EBUSY, reason, name)
        return image


class FinefsFileSystem(AbstractFileSystem):
    """An image as a file system of fsspec.

    ``image`` is the name of one, or an ``Image`` that is open. ``access`` is "r" (nothing is
    written) or "r+"; ``mode`` is another name for it, but ``fsspec.open`` and pandas take a
    ``mode`` themselves. ``journal`` is the device of an external journal.

    All file systems of one image in a process, also those of other threads, share one open
    ``Image``, from the first until ``close()`` of any of them or the end of the program. One with
    access "r" that comes to an image open with "r+" sees what is written there, and writes nothing
    itself (EROFS). One with access "r+" that comes to an image open with "r" fails (EBUSY). After
    ``os.fork()`` the child opens images of its own; file systems of the parent are not usable
    there.

    Symbolic links are followed where a path names one, but not in what lies below it: ``ls``,
    ``walk`` and ``find`` show links with the type "link" and the size of what they lead to.
    ``rm`` removes links, ``get`` copies the files that they lead to, and makes an empty directory
    of a link to a directory. Transactions are not there (``NotImplementedError``).
    """

    protocol = "finefs"
    root_marker = "/"
    # What is shared is the image: a cache by arguments would keep those that are closed.
    cachable = False

    def __init__(self, image, access=None, journal=None, *, mode=None, **options):
        super().__init__(**options)
        if access is not None and mode is not None and access != mode:
            raise ValueError("access and mode are two names of one argument")
        is_open = isinstance(image, Image)
        access = access or mode or (None if is_open else "r")
        if access not in (None, "r", "r+"):
            raise ValueError('access is "r" or "r+"')
        self._only_reads = access == "r"
        self.image = image if is_open else _shared(os.fsdecode(image), access, journal)

    @property
    def _changing(self):
        """The image, for who changes it."""
        if self._only_reads:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), self.image.name)
        return self.image

    @classmethod
    def _split(cls, path):
        path = os.fspath(path)
        if path.startswith("finefs://"):
            path = path[len("finefs://"):]
            image, colon, inside = path.partition(":/")
            if colon:
                return image, "/" + inside
            return (path[:-1] if path.endswith(":") else path), "/"
        return None, path

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        _, path = cls._split(path)
        return "/" + path.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path):
        image, _ = FinefsFileSystem._split(path)
        return {} if image is None else {"image": image}

    def close(self):
        """Ends the image, for all that share it: everything is on it."""
        with _lock:
            for place, (image, _) in list(_images.items()):
                if image is self.image:
                    del _images[place]
            self.image.close()

    def _info(self, path, found):
        size = found.st_size if _KINDS.get(found.st_mode & 0o170000) == "file" else 0
        return {
            "name": path,
            "size": size,
            "type": _KINDS.get(found.st_mode & 0o170000, "other"),
            "mode": found.st_mode,
            "uid": found.st_uid,
            "gid": found.st_gid,
            "ino": found.st_ino,
            "nlink": found.st_nlink,
            "mtime": found.st_mtime,
        }

    def info(self, path, **_):
        path = self._strip_protocol(path)
        found = self.image.lstat(path)
        if found.st_mode & 0o170000 != 0o120000:
            return self._info(path, found)
        link = {"islink": True, "destination": self.image.readlink(path)}
        try:
            return {**self._info(path, self.image.stat(path)), **link}
        except OSError as error:
            if error.errno not in LEADS_NOWHERE:
                raise
            return {**self._info(path, found), **link}

    def _entry(self, path):
        """What is listed of a path: nobody descends through links."""
        found = self.info(path)
        return {**found, "type": "link"} if "islink" in found else found

    def ls(self, path, detail=True, **_):
        path = self._strip_protocol(path)
        if not self.image.isdir(path):
            found = [self._entry(path)]
        else:
            names = sorted(self.image.listdir(path))
            found = [self._entry(path.rstrip("/") + "/" + name) for name in names]
        return found if detail else [one["name"] for one in found]

    def exists(self, path, **_):
        return self.image.exists(self._strip_protocol(path))

    def open(self, path, mode="rb", *args, **options):
        file = super().open(path, mode, *args, **options)
        if isinstance(file, io.TextIOWrapper) and file.writable():
            self.image._watch(file)
        return file

    def _open(self, path, mode="rb", block_size=None, autocommit=True, **_):
        changes = not set(mode).isdisjoint("wax+")
        if changes and not autocommit:
            raise NotImplementedError("images have no transactions of fsspec")
        image = self._changing if changes else self.image
        return image.open(self._strip_protocol(path), mode)

    def cat_file(self, path, start=None, end=None, **_):
        path = self._strip_protocol(path)
        if start is None and end is None:
            return self.image.read_bytes(path)
        return super().cat_file(path, start, end)

    def cat(self, path, recursive=False, on_error="raise", **ranges):
        if on_error != "raise" or ranges:
            return super().cat(path, recursive=recursive, on_error=on_error, **ranges)
        paths = self.expand_path(path, recursive=recursive)
        contents = self.image.read_many(paths)
        if len(paths) > 1 or isinstance(path, list) or paths[0] != self._strip_protocol(path):
            return dict(zip(paths, contents))
        return contents[0]

    def pipe_file(self, path, value, mode="overwrite", **_):
        """Makes a file of these bytes; with ``mode`` "create" there must be none."""
        if mode not in ("overwrite", "create"):
            raise ValueError('mode is "overwrite" or "create"')
        value = bytes_of(value)
        if mode == "overwrite" and not self._intrans:
            self._changing.write_bytes(self._strip_protocol(path), value)
            return
        with self.open(path, "xb" if mode == "create" else "wb") as file:
            file.write(value)

    def mkdir(self, path, create_parents=True, **_):
        path = self._strip_protocol(path)
        if create_parents:
            self._changing.makedirs(path)
        else:
            self._changing.mkdir(path)

    def makedirs(self, path, exist_ok=False):
        self._changing.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path):
        self._changing.rmdir(self._strip_protocol(path))

    def _is_directory(self, path):
        """Whether a directory itself is there, not a link to one."""
        return self.image.isdir(path) and not self.image.islink(path)

    def _rm(self, path):
        path = self._strip_protocol(path)
        if self._is_directory(path):
            self._changing.rmdir(path)
        else:
            self._changing.remove(path)

    rm_file = _rm

    def rm(self, path, recursive=False, maxdepth=None):
        """Removes files, links and empty directories; with ``recursive`` directories with all that
        is in them. Of a link nothing is removed but the link itself.
        """
        # What lies in a directory is sorted behind it, and is removed before.
        for top in reversed(self.expand_path(path)):
            if not recursive or not self._is_directory(top):
                self._rm(top)
            elif maxdepth is None:
                self._changing.rmtree(top)
            else:
                below = self.find(top, maxdepth=maxdepth, withdirs=True)
                for one in sorted({top, *below}, reverse=True):
                    self._rm(one)

    def mv(self, path1, path2, **_):
        self._changing.rename(self._strip_protocol(path1), self._strip_protocol(path2))

    def cp_file(self, path1, path2, **_):
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.image.isdir(path1):
            self._changing.makedirs(path2, exist_ok=True)
            return
        with self.image.open(path1, "rb") as source, self._changing.open(path2, "wb") as copy:
            while data := source.read(1 << 20):
                copy.write(data)

    def created(self, path):
        raise NotImplementedError("ask Image.stat")

    def modified(self, path):
        from datetime import datetime, timezone

        found = self.image.stat(self._strip_protocol(path))
        return datetime.fromtimestamp(found.st_mtime, timezone.utc)
