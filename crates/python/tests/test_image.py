"""Images are used as the module os is."""

import array
import errno
import io
import os
import resource
import stat
import subprocess

import finefs
import pytest


def fails(number, call, *args, **options):
    with pytest.raises(OSError) as caught:
        call(*args, **options)
    assert caught.value.errno == number, caught.value
    return caught.value


def test_files_are_read_and_written_as_open_does(image):
    with image.open("/a", "x") as file:
        assert isinstance(file, io.TextIOWrapper)
        file.write("eins\nzwei\n")
    assert image.open("a").readlines() == ["eins\n", "zwei\n"]
    with image.open("a", "r+b") as file:
        assert file.read(4) == b"eins"
        file.seek(0)
        file.write(b"drei")
    with image.open("a", "ab") as file:
        assert file.tell() == 10
        file.write(b"vier\n")
    assert image.read_text("a") == "drei\nzwei\nvier\n"
    with image.open("a", "rb", buffering=0) as file:
        assert isinstance(file, finefs.File)
        assert file.read(3) == b"dre" and file.readall() == b"i\nzwei\nvier\n" and file.read(1) == b""
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"no")
    with pytest.raises(ValueError):
        file.read(1)
    with image.open("a", "w") as file:
        pass
    assert image.stat("a").st_size == 0
    for wrong in ("", "rw", "q", "bt", "rr"):
        with pytest.raises(ValueError):
            image.open("a", wrong)


def test_many_files_are_read_in_a_call(image):
    for name in "abc":
        image.write_bytes(name, name.encode() * 5000)
    assert image.read_many([]) == []
    assert image.read_many(["b", "/a", "b"]) == [b"b" * 5000, b"a" * 5000, b"b" * 5000]
    with pytest.raises(FileNotFoundError) as caught:
        image.read_many(["a", "no", "c"])
    assert caught.value.filename == "no"


def test_errors_are_those_of_os(image):
    with pytest.raises(FileNotFoundError) as caught:
        image.open("/no/where")
    assert caught.value.filename == "/no/where" and caught.value.errno == errno.ENOENT
    image.mkdir("d")
    image.write_bytes("d/f", b"")
    with pytest.raises(FileExistsError):
        image.mkdir("d")
    with pytest.raises(IsADirectoryError):
        image.remove("d")
    with pytest.raises(NotADirectoryError):
        image.listdir("d/f")
    fails(errno.ENOTEMPTY, image.rmdir, "d")
    fails(errno.ENODATA, image.getxattr, "d", "user.no")
    with pytest.raises(FileExistsError):
        image.open("d/f", "x")


def test_holes_are_found(image):
    with image.open("f", "wb", buffering=0) as file:
        assert file.write(b"x" * 4096) == 4096
        assert file.truncate(1 << 20) == 1 << 20
        file.seek(1 << 19)
        file.write(memoryview(b"yy"))
        assert file.seek(1, os.SEEK_HOLE) == 4096
        assert file.seek(4096, os.SEEK_DATA) == 1 << 19
        fails(errno.EINVAL, file.seek, -1)
        file.sync()
    assert image.stat("f").st_blocks == 16


@pytest.fixture
def little_memory():
    """The process gets no more than 4 GiB of addresses."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def test_what_memory_cannot_hold_is_not_read(little_memory):
    with finefs.memory(1 << 20) as image:
        image.write_bytes("huge", b"begin")
        image.truncate("huge", 8 << 40)
        with image.open("huge", "rb", buffering=0) as file:
            assert file.read(5) == b"begin"
            with pytest.raises(MemoryError):
                file.read()
            with pytest.raises(MemoryError):
                file.read(1 << 40)
        for read in (image.read_bytes, image.read_text, lambda path: image.read_many([path])):
            with pytest.raises(MemoryError):
                read("huge")
        assert image.stat("huge").st_size == 8 << 40


def test_only_bytes_are_written(image):
    with image.open("f", "wb", buffering=0) as file:
        for wrong in (10, "text", None, [1, 2]):
            with pytest.raises(TypeError):
                file.write(wrong)
        assert file.write(array.array("I", [1, 2])) == 8
        assert file.write(memoryview(b"abcdef")[::2]) == 3
        assert file.write(bytearray(b"x")) == 1
    assert image.read_bytes("f") == array.array("I", [1, 2]).tobytes() + b"acex"


def test_a_closed_file_keeps_nothing_open(image):
    image.sync()
    free = image.statvfs().f_bfree
    for buffering in (0, -1):
        file = image.open("f", "w+b", buffering)
        file.write(b"x" * 100_000)
        file.flush()
        image.remove("f")
        image.sync()
        assert image.statvfs().f_bfree < free
        file.close()
        file.close()
        image.sync()
        assert file.closed and image.statvfs().f_bfree == free
        for use in (file.read, file.tell, lambda: file.write(b"x"), lambda: file.seek(0)):
            with pytest.raises(ValueError):
                use()
    raw = image.open("f", "w+b", 0)
    raw.close()
    for use in (raw.stat, raw.sync, raw.truncate, raw.readall, lambda: raw.seek(0, os.SEEK_DATA),
                lambda: raw.readinto(bytearray(1)), raw.readable, raw.fileno):
        with pytest.raises(ValueError if use != raw.fileno else OSError):
            use()


def test_attributes_are_those_that_were_set(image):
    image.write_bytes("f", b"12345")
    image.chown("f", 5, -1)
    image.chmod("f", 0o4750)
    image.symlink("f", "l")
    image.chown("l", 7, 8, follow_symlinks=False)
    image.utime("f", ns=(-1, 10**18 + 1))
    found = image.stat("l")
    assert stat.S_ISREG(found.st_mode) and found.st_mode & 0o7777 == 0o4750
    assert (found.st_size, found.st_uid, found.st_gid, found.st_nlink) == (5, 5, 0, 1)
    assert (found.st_atime_ns, found.st_mtime_ns, found.st_mtime) == (-1, 10**18 + 1, 1e9)
    link = image.lstat("l")
    assert stat.S_ISLNK(link.st_mode) and (link.st_uid, link.st_gid) == (7, 8)
    assert image.readlink("l") == "f" and image.islink("l") and image.isfile("l")
    image.setxattr("l", "user.a", b"\0\xff")
    assert image.listxattr("f") == ["user.a"] and image.getxattr("f", "user.a") == b"\0\xff"
    assert image.listxattr("l", follow_symlinks=False) == []
    image.removexattr("f", "user.a")
    assert image.listxattr("f") == []
    image.link("f", "g")
    assert image.stat("g").st_ino == found.st_ino and image.stat("g").st_nlink == 2
    image.mknod("null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    assert image.stat("null").st_rdev == os.makedev(1, 3)
    image.truncate("f", 3)
    assert image.read_bytes("g") == b"123"


def test_names_that_are_no_unicode(image):
    name = os.fsdecode(b"caf\xe9")
    image.write_bytes(name, b"1")
    assert name in image.listdir() and image.read_bytes(name) == b"1"


def test_names_with_a_nul_byte_are_refused(image):
    image.write_bytes("f", b"")
    for call, *args in (
        (image.setxattr, "/f", "user.a\0b", b"x"),
        (image.getxattr, "/f", "user.a\0b"),
        (image.symlink, "a\0b", "/l"),
        (image.symlink, "f", "/l\0"),
        (image.write_bytes, "a\0b", b""),
        (image.mkdir, "a\0b"),
        (image.rename, "f", "a\0b"),
        (image.open, "f\0", "w"),
    ):
        with pytest.raises((ValueError, OSError)):
            call(*args)
    assert [name for name in image.listdir() if name != "lost+found"] == ["f"]
    assert image.listxattr("f") == []


def test_trees_are_walked(image):
    image.makedirs("/t/a/b")
    image.makedirs("/t/a/b", exist_ok=True)
    with pytest.raises(FileExistsError):
        image.makedirs("t/a/b")
    image.write_bytes("t/a/f", b"")
    image.symlink("a", "t/l")
    walked = [(top, sorted(dirs), files) for top, dirs, files in image.walk("/t")]
    assert walked == [("/t", ["a", "l"], []), ("/t/a", ["b"], ["f"]), ("/t/a/b", [], [])]
    entries = {entry.name: entry for entry in image.scandir("/t")}
    assert entries["l"].is_symlink() and entries["l"].is_dir()
    assert not entries["l"].is_dir(follow_symlinks=False)
    assert os.fspath(entries["a"]) == "/t/a" and entries["a"].inode() == image.stat("/t/a").st_ino
    assert list(image.walk("/none")) == []
    image.rename("t", "u")
    image.rmtree("u")
    assert not image.exists("u") and not image.isdir("u")


def test_links_that_lead_nowhere_are_no_directories(image, tmp_path):
    for place in (tmp_path / "t", image):
        make, link = (image.makedirs, image.symlink) if place is image else (os.makedirs, os.symlink)
        top = "/t" if place is image else str(place)
        make(f"{top}/d")
        for name, target in (("loop", "loop"), ("through", "file/x"), ("dangling", "none"),
                             ("long", "n" * 300)):
            link(target, f"{top}/{name}")
    image.write_bytes("t/file", b"")
    (tmp_path / "t" / "file").write_bytes(b"")
    listed = [(dirs, sorted(files)) for _, dirs, files in image.walk("/t")]
    assert listed == [(dirs, sorted(files)) for _, dirs, files in os.walk(tmp_path / "t")]
    for name in ("loop", "through", "dangling", "long", "file/x", "n" * 300):
        assert not image.exists(f"t/{name}") and not image.isdir(f"t/{name}")
        assert not image.isfile(f"t/{name}")
        assert image.islink(f"t/{name}") == os.path.islink(tmp_path / "t" / name)
    fails(errno.ELOOP, image.stat, "t/loop")


def test_trees_go_in_and_out(image, tmp_path):
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "file").write_bytes(b"content")
    (tree / "link").symlink_to("sub/file")
    os.utime(tree / "sub" / "file", ns=(10**18, 10**18 + 5))
    assert image.add(tree, "/copy", jobs=2) == 4
    assert image.read_text("copy/link") == "content"
    assert image.stat("copy/sub/file").st_mtime_ns == 10**18 + 5
    out = tmp_path / "out"
    assert image.extract("copy", out) == 4
    assert (out / "link").read_text() == "content"
    assert (out / "sub" / "file").stat().st_mtime_ns == 10**18 + 5
    with pytest.raises(FileNotFoundError):
        image.extract("nothing", tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_images_are_opened_and_closed(disk):
    with finefs.Image(str(disk), "r+") as image:
        assert image.label == "disk" and not image.read_only
        image.set_label("other")
        image.write_text("f", "kept")
        space = image.statvfs()
        assert space.f_namemax == 255 and 0 < space.f_bavail <= space.f_bfree < space.f_blocks
        file = image.open("f")
    assert image.closed
    image.close()
    fails(errno.EIO, file.read)
    with finefs.Image(disk) as image:
        assert image.read_only and image.label == "other" and image.read_text("/f") == "kept"
        fails(errno.EROFS, image.mkdir, "d")
        fails(errno.EBUSY, finefs.Image, disk, "r+")
    with pytest.raises(ValueError):
        finefs.Image(disk, "w")
    with pytest.raises(FileNotFoundError):
        finefs.Image("/nowhere.img")
    with pytest.raises(FileExistsError):
        finefs.mkfs(disk, 1 << 20)


def test_why_no_file_system_is_made(tmp_path):
    missing = tmp_path / "none" / "disk.img"
    with pytest.raises(FileNotFoundError) as caught:
        finefs.mkfs(missing, 1 << 20)
    assert caught.value.filename == str(missing)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        finefs.mkfs(tmp_path / "file" / "disk.img", 1 << 20)
    with pytest.raises(ValueError):
        finefs.mkfs(tmp_path / "disk.img", 1)
    with pytest.raises(ValueError):
        finefs.mkfs(tmp_path / "disk.img", 1 << 20, label="n" * 17)
    assert not (tmp_path / "disk.img").exists()


def test_images_are_built(tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "f").write_bytes(b"x" * 100_000)
    made = finefs.build(tmp_path / "one.img", tree, owner=(3, 4), label="built", jobs=2)
    assert made["files"] == 2 and made["data_bytes"] >= 100_000
    finefs.build(tmp_path / "two.img", [str(tree)], owner=(3, 4), label="built")
    assert (tmp_path / "one.img").read_bytes() == (tmp_path / "two.img").read_bytes()
    subprocess.run(["e2fsck", "-fn", tmp_path / "one.img"], check=True, capture_output=True)
    with finefs.Image(tmp_path / "one.img") as image:
        assert image.read_bytes("f") == b"x" * 100_000 and image.stat("f").st_uid == 3
    with pytest.raises(ValueError):
        finefs.build(tmp_path / "three.img", tree, fs_type="xfs")
    with pytest.raises(FileNotFoundError):
        finefs.build(tmp_path / "three.img", tmp_path / "none")
