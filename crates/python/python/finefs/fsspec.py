"""Images for fsspec: ``fsspec.open("finefs:///srv/disk.img:/etc/hostname")``, and with it for pandas,
dask and others.

A URL is finefs://IMAGE:/PATH, as the commands of finefs have it. ``FinefsFileSystem(image="disk.img")``
takes paths in the image. ``mode`` "r+" lets the image be written; it is one file system, opened once,
until ``close()``.
"""

import io
import os

from fsspec.spec import AbstractFileSystem

from . import Image
from ._image import LEADS_NOWHERE, bytes_of

_KINDS = {0o100000: "file", 0o040000: "directory", 0o120000: "link"}


class FinefsFileSystem(AbstractFileSystem):
    """An image as a file system of fsspec.

    Symbolic links are followed where a path names one, but not in what lies below it: ``ls``,
    ``walk`` and ``find`` show links with the type "link" and the size of what they lead to.
    ``rm`` removes links, ``get`` copies the files that they lead to, and makes an empty directory
    of a link to a directory. Transactions are not there (``NotImplementedError``).
    """

    protocol = "finefs"
    root_marker = "/"

    def __init__(self, image, mode="r", journal=None, **options):
        super().__init__(**options)
        is_open = isinstance(image, Image)
        self.image = image if is_open else Image(image, mode, journal=journal)

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
        """Ends the image: everything is on it."""
        self.image.close()
        self.clear_instance_cache()

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
        return self.image.open(self._strip_protocol(path), mode)

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
            self.image.write_bytes(self._strip_protocol(path), value)
            return
        with self.open(path, "xb" if mode == "create" else "wb") as file:
            file.write(value)

    def mkdir(self, path, create_parents=True, **_):
        path = self._strip_protocol(path)
        if create_parents:
            self.image.makedirs(path)
        else:
            self.image.mkdir(path)

    def makedirs(self, path, exist_ok=False):
        self.image.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path):
        self.image.rmdir(self._strip_protocol(path))

    def _is_directory(self, path):
        """Whether a directory itself is there, not a link to one."""
        return self.image.isdir(path) and not self.image.islink(path)

    def _rm(self, path):
        path = self._strip_protocol(path)
        if self._is_directory(path):
            self.image.rmdir(path)
        else:
            self.image.remove(path)

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
                self.image.rmtree(top)
            else:
                below = self.find(top, maxdepth=maxdepth, withdirs=True)
                for one in sorted({top, *below}, reverse=True):
                    self._rm(one)

    def mv(self, path1, path2, **_):
        self.image.rename(self._strip_protocol(path1), self._strip_protocol(path2))

    def cp_file(self, path1, path2, **_):
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.image.isdir(path1):
            self.image.makedirs(path2, exist_ok=True)
            return
        with self.image.open(path1, "rb") as source, self.image.open(path2, "wb") as copy:
            while data := source.read(1 << 20):
                copy.write(data)

    def created(self, path):
        raise NotImplementedError("ask Image.stat")

    def modified(self, path):
        from datetime import datetime, timezone

        found = self.image.stat(self._strip_protocol(path))
        return datetime.fromtimestamp(found.st_mtime, timezone.utc)
