"""Images as a file system of fsspec."""

import os

import fsspec
import pytest
from finefs.fsspec import FinefsFileSystem

fsspec.register_implementation("finefs", FinefsFileSystem, clobber=True)


@pytest.fixture
def fs(disk):
    fs = fsspec.filesystem("finefs", image=str(disk), mode="r+", skip_instance_cache=True)
    yield fs
    fs.close()


def test_files_and_directories(fs):
    fs.makedirs("/a/b")
    with fs.open("/a/b/f", "w") as file:
        file.write("hello")
    fs.pipe_file("a/g", b"0123456789")
    assert fs.cat("/a/b/f") == b"hello"
    assert fs.cat_file("a/g", start=2, end=4) == b"23"
    assert fs.cat(["a/g", "/a/b/f"]) == {"/a/g": b"0123456789", "/a/b/f": b"hello"}
    assert fs.cat("/a/*/f") == {"/a/b/f": b"hello"}
    assert fs.cat(["a/g", "a/no"], on_error="omit") == {"/a/g": b"0123456789"}
    with pytest.raises(FileNotFoundError):
        fs.cat(["a/g", "a/no"])
    assert fs.ls("/a", detail=False) == ["/a/b", "/a/g"]
    assert fs.info("a/b")["type"] == "directory" and fs.info("a/g")["size"] == 10
    assert fs.find("/a") == ["/a/b/f", "/a/g"] and fs.glob("/a/*/f") == ["/a/b/f"]
    fs.image.symlink("g", "/a/l")
    assert fs.info("a/l")["islink"] and fs.info("a/l")["size"] == 10
    fs.cp_file("a/g", "a/h")
    fs.mv("a/h", "a/i")
    assert fs.cat("a/i") == b"0123456789" and not fs.exists("a/h")
    fs.rm("/a", recursive=True)
    assert not fs.exists("/a")
    with pytest.raises(FileNotFoundError):
        fs.info("/a")


def test_links_that_lead_nowhere(fs):
    fs.makedirs("/a")
    fs.pipe_file("/a/f", bytearray(b"12"))
    fs.image.symlink("loop", "/a/loop")
    fs.image.symlink("f/x", "/a/through")
    fs.image.symlink("none", "/a/dangling")
    links = ["/a/dangling", "/a/loop", "/a/through"]
    for link in links:
        assert fs.info(link)["type"] == "link" and fs.info(link)["islink"]
        assert not fs.exists(link) and not fs.isdir(link) and not fs.isfile(link)
        assert fs.ls(link, detail=False) == [link]
    assert fs.ls("/a", detail=False) == ["/a/dangling", "/a/f", "/a/loop", "/a/through"]
    assert "/a/f" in fs.find("/a")
    with pytest.raises(TypeError):
        fs.pipe_file("/a/f", 10)
    assert fs.cat_file("/a/f") == b"12"
    fs.rm("/a", recursive=True)
    assert not fs.exists("/a")


def test_trees_go_in_and_out(fs, tmp_path):
    (tmp_path / "in" / "d").mkdir(parents=True)
    (tmp_path / "in" / "d" / "f").write_text("text")
    fs.put(str(tmp_path / "in"), "/in", recursive=True)
    fs.get("/in", str(tmp_path / "out"), recursive=True)
    found = [path for path in (tmp_path / "out").rglob("f")]
    assert len(found) == 1 and found[0].read_text() == "text"


def test_urls_name_image_and_path(disk, fs):
    fs.pipe_file("/etc", b"")
    fs.rm("/etc")
    fs.makedirs("/etc")
    fs.pipe_file("/etc/hostname", b"box\n")
    fs.close()
    with fsspec.open(f"finefs://{disk}:/etc/hostname", "rt") as file:
        assert file.read() == "box\n"
    opened = fsspec.open(f"finefs://{disk}:/etc/hostname").fs
    assert opened.image.name == os.fspath(disk)
    opened.close()
