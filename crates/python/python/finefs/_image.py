"""Images and their files."""

import errno
import io
import os
import posixpath
import stat as _stat
import threading
import warnings
import weakref

from . import _finefs

# Errors of paths at which there is nothing.
LEADS_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)

# This process, known without a system call: what was opened by another one is not used here.
_process = os.getpid()


def _in_child_of_fork():
    global _process
    _process = os.getpid()


os.register_at_fork(after_in_child=_in_child_of_fork)


def _stat_result(found):
    mode, ino, nlink, uid, gid, size, blocks, rdev, times = found
    visible = (mode, ino, 0, nlink, uid, gid, size, *(time // 10**9 for time in times[:3]))
    more = {"st_blksize": 4096, "st_blocks": blocks, "st_rdev": rdev}
    for name, time in zip(("st_atime", "st_mtime", "st_ctime"), times):
        more[name] = time / 1e9
        more[name + "_ns"] = time
    return os.stat_result(visible, more)


def bytes_of(data):
    """The bytes of an object that has some; a number has none."""
    return data if isinstance(data, bytes) else memoryview(data).tobytes()


class DirEntry:
    """An entry of a directory, as os.DirEntry is."""

    __slots__ = ("_image", "_kind", "_inode", "name", "path")

    def __init__(self, image, directory, name, inode, kind):
        self._image = image
        self._inode = inode
        self._kind = kind
        self.name = name
        self.path = posixpath.join(directory, name)

    def inode(self):
        return self._inode

    def is_symlink(self):
        return self._kind == _stat.S_IFLNK

    def is_dir(self, *, follow_symlinks=True):
        return self._is(_stat.S_IFDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks=True):
        return self._is(_stat.S_IFREG, follow_symlinks)

    def stat(self, *, follow_symlinks=True):
        return self._image.stat(self.path, follow_symlinks=follow_symlinks)

    def _is(self, kind, follows):
        if not (follows and self.is_symlink()):
            return self._kind == kind
        try:
            return _stat.S_IFMT(self.stat().st_mode) == kind
        except FileNotFoundError:
            return False

    def __fspath__(self):
        return self.path

    def __repr__(self):
        return f"<finefs.DirEntry {self.name!r}>"


class File(io.RawIOBase):
    """An open file, without a buffer: ``Image.open(path, "rb", buffering=0)``."""

    def __init__(self, raw, name, mode, appends):
        self._raw = raw
        self._process = _process
        self._position = 0
        self._appends = appends
        self.name = name
        self.mode = mode

    def close(self):
        """Closes the file; from then on it keeps nothing of the image open."""
        try:
            super().close()
        finally:
            self._raw = None

    def readable(self):
        self._checkClosed()
        return "r" in self.mode or "+" in self.mode

    def writable(self):
        self._checkClosed()
        return "r" not in self.mode or "+" in self.mode

    def seekable(self):
        self._checkClosed()
        return True

    def readinto(self, buffer):
        self._checkReadable()
        view = memoryview(buffer).cast("B")
        data = self._raw.pread(len(view), self._position)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def readall(self):
        self._checkReadable()
        size = max(0, self.stat().st_size - self._position)
        data = self._raw.pread(size, self._position)
        self._position += len(data)
        return data

    def write(self, data):
        self._check_process()
        self._checkWritable()
        data = bytes_of(data)
        if self._appends:
            self._position = self._raw.append(data)
            return len(data)
        count = self._raw.pwrite(data, self._position)
        self._position += count
        return count

    def seek(self, offset, whence=os.SEEK_SET):
        self._checkClosed()
        if whence == os.SEEK_CUR:
            offset += self._position
        elif whence == os.SEEK_END:
            offset += self.stat().st_size
        elif whence == os.SEEK_DATA:
            offset = self._raw.seek_data(offset)
        elif whence == os.SEEK_HOLE:
            offset = self._raw.seek_hole(offset)
        elif whence != os.SEEK_SET:
            raise ValueError(f"invalid whence ({whence})")
        if offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._position = offset
        return offset

    def tell(self):
        self._checkClosed()
        return self._position

    def truncate(self, size=None):
        self._check_process()
        self._checkWritable()
        if size is None:
            size = self._position
        self._raw.truncate(size)
        return size

    def sync(self):
        """Returns when the file is on the image (fsync)."""
        self._checkClosed()
        self._raw.sync()

    def stat(self):
        self._checkClosed()
        return _stat_result(self._raw.stat())

    def _check_process(self):
        # The child of a fork has a copy of the buffers, which it must not write a second time.
        if self._process != _process:
            raise OSError(errno.EIO, "the file was opened before a fork", self.name)


class _Sized:
    """A buffered file that knows its size, as fsspec wants those that it reads."""

    __slots__ = ()

    @property
    def size(self):
        """The size in bytes, without what is still in the buffer."""
        return self.raw.stat().st_size


class _BufferedReader(_Sized, io.BufferedReader):
    pass


class _BufferedRandom(_Sized, io.BufferedRandom):
    pass


def _has_ended(file):
    """Whether a file is closed, or detached from the one that it wrote to."""
    try:
        return file.closed
    except ValueError:
        return True


class Image(_finefs.Image):
    """An open image: a path, ``IMAGE@p2`` or ``IMAGE@LABEL`` for a partition.

    ``mode`` is "r" (nothing is written) or "r+". Used in a ``with`` statement the image is closed
    at its end, and an error then says what is not on it. One that goes without ``close()`` gives a
    ``ResourceWarning``; what was done is written, but an error is only printed
    (``sys.unraisablehook``).

    An image is not usable across ``os.fork()``: only the process that opened it may use it. The
    child opens images of its own; there, the parent's is not closed, and its files are not written
    (EIO).
    """

    closed = False
    _process = None

    def __new__(cls, name, mode="r", *, memory=None, journal=None):
        image = super().__new__(cls, name, mode, memory=memory, journal=journal)
        image._lock = threading.Lock()
        image._writers = weakref.WeakSet()  # with buffers that close() flushes; under the lock
        image._process = _process
        return image

    def __del__(self, _warn=warnings.warn):
        if self.closed or self._process != _process:
            return
        try:
            _warn(f"unclosed {self!r}", ResourceWarning, source=self)
        finally:
            # Files that were opened from it may still be in use: the last of them ends it.
            self.sync()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Everything is on the image, also what its files have in their buffers, or an error says
        what is not. The image and its files fail from now on (EIO).
        """
        if self.closed:
            return
        self.closed = True
        if self._process != _process:
            raise OSError(errno.EIO, "the image was opened before a fork", self.name)
        errors = self._flush_writers()
        try:
            self._close()
        finally:
            if errors:
                raise errors[0]

    def _watch(self, writer):
        """The image flushes this file before it is closed."""
        with self._lock:
            self._writers.add(writer)

    def _flush_writers(self):
        with self._lock:
            writers = list(self._writers)
        errors = []
        for writer in writers:
            try:
                if not _has_ended(writer):
                    writer.flush()
            except Exception as error:
                # Who closes a file meanwhile is told of its errors.
                if not _has_ended(writer):
                    errors.append(error)
        return errors

    def open(self, path, mode="r", buffering=-1, encoding=None, errors=None, newline=None, *,
             permissions=0o666):
        """Opens a file as the function ``open`` does; ``permissions`` are those of a new one."""
        if len(set(mode)) != len(mode) or set(mode) - set("rwxabt+") or set("bt") <= set(mode):
            raise ValueError(f"invalid mode: {mode!r}")
        kinds = [kind for kind in mode if kind in "rwxa"]
        if len(kinds) != 1:
            raise ValueError("give one of read, write, create and append mode: r, w, x, a")
        is_binary, kind, both = "b" in mode, kinds[0], "+" in mode
        if is_binary and (encoding or errors or newline):
            raise ValueError("binary mode takes no encoding, errors or newline")
        if buffering == 0 and not is_binary:
            raise ValueError("text cannot be unbuffered")
        reads, writes = kind == "r" or both, kind != "r" or both
        how = [reads, writes, kind == "a", kind == "w", kind in "wa", kind == "x"]
        raw = File(self._open_file(path, how, permissions), path, kind + "+" * both, kind == "a")
        if kind == "a":
            raw.seek(0, os.SEEK_END)
        if buffering == 0:
            return raw
        size = buffering if buffering > 1 else 1 << 16
        if both:
            file = _BufferedRandom(raw, size)
        elif reads:
            file = _BufferedReader(raw, size)
        else:
            file = io.BufferedWriter(raw, size)
        if writes:
            self._watch(file)
        if is_binary:
            return file
        text = io.TextIOWrapper(file, encoding, errors, newline, buffering == 1)
        text.mode = mode
        if writes:
            self._watch(text)
        return text

    def read_text(self, path, encoding=None, errors=None):
        """All of a file as text."""
        with self.open(path, encoding=encoding, errors=errors) as file:
            return file.read()

    def write_text(self, path, data, encoding=None, errors=None, newline=None):
        """Makes a file of this text, or gives it to one that is there."""
        with self.open(path, "w", -1, encoding, errors, newline) as file:
            return file.write(data)

    def stat(self, path, *, follow_symlinks=True):
        """Attributes as ``os.stat`` has them."""
        return _stat_result(self._stat(path, follow_symlinks))

    def lstat(self, path):
        """Those of a symbolic link itself."""
        return self.stat(path, follow_symlinks=False)

    def isdir(self, path):
        return self._is(path, _stat.S_ISDIR)

    def isfile(self, path):
        return self._is(path, _stat.S_ISREG)

    def islink(self, path):
        return self._is(path, _stat.S_ISLNK, follow_symlinks=False)

    def _is(self, path, test, **options):
        try:
            return test(self.stat(path, **options).st_mode)
        except OSError as error:
            if error.errno not in LEADS_NOWHERE:
                raise
            return False

    def scandir(self, path="/"):
        """The entries of a directory as ``DirEntry``."""
        path = os.fspath(path)
        for name, inode, kind in self._scandir(path):
            yield DirEntry(self, path, name, inode, kind)

    def walk(self, top="/", topdown=True, onerror=None, followlinks=False):
        """All directories below ``top``, as ``os.walk`` gives them."""
        try:
            entries = list(self.scandir(top))
        except OSError as error:
            if onerror is not None:
                onerror(error)
            return
        directories, others = [], []
        for entry in entries:
            try:
                is_directory = entry.is_dir()
            except OSError:
                # A link that leads nowhere is no directory; so says os.walk.
                is_directory = False
            (directories if is_directory else others).append(entry.name)
        top = os.fspath(top)
        if topdown:
            yield top, directories, others
        for name in directories:
            path = posixpath.join(top, name)
            if followlinks or not self.islink(path):
                yield from self.walk(path, topdown, onerror, followlinks)
        if not topdown:
            yield top, directories, others

    def makedirs(self, path, mode=0o777, exist_ok=False):
        """Makes a directory, and those that lead to it."""
        parent = posixpath.dirname(os.fspath(path).rstrip("/"))
        if parent.strip("/"):
            self._create_dir_all(parent)
        try:
            self.mkdir(path, mode)
        except FileExistsError:
            if not (exist_ok and self.isdir(path)):
                raise

    def replace(self, src, dst):
        """Renames; the same as ``rename``, which replaces too."""
        self.rename(src, dst)

    def utime(self, path, times=None, *, ns=None, follow_symlinks=True):
        """Sets the times of access and modification, as ``os.utime`` does."""
        if times is not None and ns is not None:
            raise ValueError("give times or ns, not both")
        if times is not None:
            ns = tuple(round(time * 10**9) for time in times)
        self._utime(path, ns, follow_symlinks)

    def statvfs(self):
        """Space and inodes as ``os.statvfs`` has them."""
        block_size, name_max, counts = self._statfs()
        blocks, free, available, files, files_free = counts
        flags = os.ST_RDONLY if self.read_only else 0
        return os.statvfs_result((block_size, block_size, blocks, free, available, files, files_free,
                                  files_free, flags, name_max))

    def __repr__(self):
        # fsspec tells images apart by this text.
        state = " closed" if self.closed else ""
        return f"<finefs.Image {os.fsdecode(self.name)!r}{state} at {id(self):#x}>"
