"""Images as a file system of fsspec."""

import errno
import os
import subprocess
import sys
import threading

import finefs
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


@pytest.fixture
def linked(fs):
    """A tree with links to a directory beside it, to one above, and to a file."""
    fs.makedirs("/a/d")
    fs.makedirs("/keep")
    fs.pipe({"/a/d/f": b"inner", "/keep/f": b"keep"})
    for target, link in (("../keep", "/a/l"), ("..", "/a/d/up"), ("d/f", "/a/file")):
        fs.image.symlink(target, link)
    return fs


def test_links_to_directories_are_not_descended(linked, tmp_path):
    fs, out = linked, tmp_path / "out"
    types = {one["name"]: (one["type"], one["size"]) for one in fs.ls("/a")}
    assert types == {"/a/d": ("directory", 0), "/a/file": ("link", 5), "/a/l": ("link", 0)}
    assert fs.find("/a") == ["/a/d/f", "/a/d/up", "/a/file", "/a/l"] and fs.du("/a") == 10
    walked = [(top, sorted(dirs), sorted(files)) for top, dirs, files in fs.walk("/a")]
    assert walked == [("/a", ["d"], ["file", "l"]), ("/a/d", [], ["f", "up"])]
    assert fs.info("/a/l")["type"] == "directory" and fs.isdir("/a/l") and fs.isfile("/a/file")
    assert fs.ls("/a/l", detail=False) == ["/a/l/f"] and fs.find("/a/l") == ["/a/l/f"]
    fs.get("/a", str(out), recursive=True)
    (top,) = [path.parent for path in out.rglob("d")]
    found = {str(path.relative_to(top)) for path in top.rglob("*")}
    assert found == {"d", "d/f", "d/up", "file", "l"}
    assert (top / "d/f").read_bytes() == (top / "file").read_bytes() == b"inner"


def test_trees_are_removed_without_what_links_lead_to(linked):
    fs = linked
    fs.rm("/a/l", recursive=True)
    assert not fs.image.islink("/a/l") and fs.cat("/keep/f") == b"keep"
    fs.image.symlink("../keep", "/a/l")
    fs.rm(["/a/d", "/a/l/"], recursive=True)
    assert fs.find("/a") == ["/a/file"] and fs.cat("/keep/f") == b"keep"
    fs.makedirs("/a/d/e")
    fs.image.symlink("../../../keep", "/a/d/e/l")
    fs.image.symlink("../keep", "/a/l")
    fs.rm("/a/*", recursive=True)
    assert fs.ls("/a") == [] and fs.cat("/keep/f") == b"keep"
    fs.makedirs("/a/d/e")
    fs.image.symlink("../../keep", "/a/d/l")
    for call in (lambda: fs.rm("/a"), lambda: fs.rm("/a", recursive=True, maxdepth=1)):
        with pytest.raises(OSError) as told:
            call()
        assert told.value.errno == errno.ENOTEMPTY and fs.exists("/a/d/e")
    fs.rm("/a", recursive=True, maxdepth=2)
    assert not fs.exists("/a") and fs.find("/keep") == ["/keep/f"]
    with pytest.raises(FileNotFoundError):
        fs.rm("/a", recursive=True)


def refused(number, call, *args, **options):
    with pytest.raises(OSError) as told:
        call(*args, **options)
    assert told.value.errno == number, told.value


def test_file_systems_of_an_image_share_it(disk, tmp_path):
    def opened(name=str(disk), **options):
        return fsspec.filesystem("finefs", image=name, **options)

    (tmp_path / "link").symlink_to(disk)
    writer, others = opened(mode="r+"), []
    thread = threading.Thread(target=lambda: others.append(opened(access="r+")))
    thread.start()
    thread.join()
    others += [opened(mode="r+"), opened(str(tmp_path / "link"), mode="r+"), opened()]
    assert all(other.image is writer.image for other in others)
    reader = others[-1]
    writer.pipe_file("/f", b"1")
    assert reader.cat("/f") == b"1"
    for call, *args in ((reader.pipe_file, "/f", b""), (reader.rm, "/f"), (reader.mkdir, "/d"),
                        (reader.mv, "/f", "/g"), (reader.open, "/f", "ab"), (reader.touch, "/f")):
        refused(errno.EROFS, call, *args)
    reader.close()
    assert writer.image.closed
    reader = opened()
    assert reader.cat("/f") == b"1" and reader.image.read_only
    refused(errno.EBUSY, opened, mode="r+")
    reader.image.close()
    opened(mode="r+").close()


def test_each_name_leads_to_its_image(tmp_path, monkeypatch):
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        finefs.mkfs(tmp_path / name / "disk.img", 16 << 20, label=name)
    found = []
    for name in ("x", "y"):
        monkeypatch.chdir(tmp_path / name)
        found.append(fsspec.filesystem("finefs", image="disk.img"))
    os.replace(tmp_path / "x" / "disk.img", tmp_path / "y" / "disk.img")
    found.append(fsspec.filesystem("finefs", image="disk.img"))
    assert [fs.image.label for fs in found] == ["x", "y", "x"]
    for fs in found:
        fs.close()
    with finefs.memory(1 << 20) as one, finefs.memory(1 << 20) as other:
        for image in (one, other):
            assert fsspec.filesystem("finefs", image=image).image is image


def test_access_is_an_option_of_urls(disk):
    url = f"finefs://{disk}:/f"
    with fsspec.open(url, mode="wb", **{"access": "r+"}) as file:
        file.write(b"data")
    with fsspec.open(url, mode="rb") as file:
        assert file.read() == b"data"
    refused(errno.EROFS, lambda: fsspec.open(url, mode="wb").open())
    FinefsFileSystem(str(disk)).close()
    for wrong in ({"access": "w"}, {"access": "r", "mode": "r+"}):
        with pytest.raises(ValueError):
            FinefsFileSystem(str(disk), **wrong)


def test_files_have_a_size(fs):
    fs.pipe_file("/f", b"0123456789")
    for mode in ("rb", "r+b"):
        with fs.open("/f", mode) as file:
            assert file.size == 10
    assert fs.tail("/f", 3) == b"789" and fs.tail("/f") == b"0123456789"
    assert fs.read_block("/f", 2, 3) == b"234" and fs.read_block("/f", 8, None) == b"89"
    assert fs.cat_file("/f", start=-3) == b"789" and fs.cat_file("/f", 2, -6) == b"23"


def test_a_file_is_made_only_where_there_is_none(fs):
    fs.pipe_file("/f", b"1", mode="create")
    with pytest.raises(FileExistsError):
        fs.pipe_file("/f", b"2", mode="create")
    with pytest.raises(ValueError):
        fs.pipe_file("/f", b"2", mode="append")
    assert fs.cat("/f") == b"1"
    fs.pipe_file("/f", b"3", mode="overwrite")
    assert fs.cat("/f") == b"3"


def test_transactions_are_refused(fs):
    fs.pipe_file("/f", b"data")
    for call in (lambda: fs.open("/g", "w"), lambda: fs.open("/f", "r+b"),
                 lambda: fs.pipe_file("/g", b""), lambda: fs.pipe_file("/g", b"", mode="create")):
        with pytest.raises(NotImplementedError):
            with fs.transaction:
                assert fs.open("/f").read() == b"data"
                call()
    assert fs.find("/") == ["/f"]


def test_what_nobody_closes_is_on_the_image(disk, fs):
    text = fs.open("/text", "w")
    text.write("text")
    fs.close()
    program = (
        "import sys; from finefs.fsspec import FinefsFileSystem\n"
        "files = FinefsFileSystem(sys.argv[1], 'r+')\n"
        "text = files.open('/end', 'w')\n"
        "text.write('end')\n"
    )
    subprocess.run([sys.executable, "-c", program, disk], check=True)
    with finefs.Image(disk) as image:
        assert image.read_many(["text", "end"]) == [b"text", b"end"]
