//! Images of other disk formats, and on servers, beside qemu-img, qemu-nbd, nbdkit and the real
//! compressors.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use finefs_image::{Access, Address, Images};

use crate::support::{Place, assert_clean, run};

/// A server in this test, which ends with it.
struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    /// Runs `program`, which is to listen on its socket `-U` or `-k`.
    fn start(place: &Place, program: &str, arguments: &[&str]) -> Server {
        Server::start_at(place, &format!("{program}.socket"), program, arguments)
    }

    /// The same with a socket of this name.
    fn start_at(place: &Place, socket: &str, program: &str, arguments: &[&str]) -> Server {
        let socket = place.path(socket);
        let _ = fs::remove_file(&socket);
        let mut command = Command::new(program);
        match program {
            "nbdkit" => command.args(["-f", "-U"]),
            _ => command.args(["--persistent", "--shared=0", "-k"]),
        };
        command.arg(&socket).args(arguments).stdout(Stdio::null());
        let child = command.spawn().unwrap();
        let server = Server { child, socket };
        let start = Instant::now();
        // It is there before somebody listens at it.
        while UnixStream::connect(&server.socket).is_err() {
            assert!(start.elapsed() < Duration::from_secs(20), "{program}");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    /// Serves a file, and fails reads and writes where these conditions of sh(1) are true; `$4` is
    /// the offset.
    fn broken(place: &Place, file: &Path, fails_reads: &str, fails_writes: &str) -> Server {
        let size = format!("get_size=echo {}", fs::metadata(file).unwrap().len());
        let file = text(file);
        let fail = "echo EIO broken >&2; exit 1; fi";
        let options = "bs=65536 status=none";
        let read = format!(
            "pread=if {fails_reads}; then {fail}
            exec dd if={file} {options} iflag=skip_bytes,count_bytes skip=$4 count=$3"
        );
        let write = format!(
            "pwrite=if {fails_writes}; then cat > /dev/null; {fail}
            exec dd of={file} {options} conv=notrunc oflag=seek_bytes seek=$4"
        );
        let can = ["can_write=exit 0", "can_flush=exit 0", "flush=exit 0"];
        let arguments = [&["eval", &size, &read, &write][..], &can].concat();
        Server::start_at(place, "broken.socket", "nbdkit", &arguments)
    }

    fn url(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    fn at(&self, path: &str) -> String {
        format!("{}:{path}", self.url())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn qemu_img(arguments: &[&str]) -> String {
    let arguments: Vec<&std::ffi::OsStr> = arguments.iter().map(|it| it.as_ref()).collect();
    String::from_utf8(run("qemu-img", &arguments).stdout).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Edits and reads, then what the bytes are is judged as raw.
fn edit(place: &Place, image: &str) {
    fs::write(place.path("file"), vec![7; 3 << 20]).unwrap();
    let at = |path: &str| format!("{image}:{path}");
    place.ok(&["mkdir", "-p", &at("/a/b")]);
    place.ok(&["cp", "file", &at("/a/b/file")]);
    place.ok(&["cp", "file", &at("/gone")]);
    place.ok(&["rm", &at("/gone")]);
    place.ok(&["ln", "-sf", "file", &at("/a/b/link")]);
    assert_eq!(place.ok(&["ls", &at("/a/b")]), "file\nlink\n");
    assert_eq!(place.ok(&["cat", &at("/a/b/file")]).len(), 3 << 20);
}

#[test]
fn a_qcow2_image_is_made_edited_and_checked() {
    let place = Place::new();
    let image = place.path("disk.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", text(&image), "64M"]);
    place.ok(&["mkfs", "-q", "disk.qcow2"]);
    edit(&place, "disk.qcow2");
    qemu_img(&["check", "-q", text(&image)]);
    qemu_img(&[
        "convert",
        "-O",
        "raw",
        text(&image),
        text(&place.path("raw")),
    ]);
    assert_clean(&place.path("raw"));
    assert!(place.ok(&["info", "disk.qcow2"]).contains("64"));
    // What a new file system overwrites is kept, and put back.
    let before = place.ok(&["find", "disk.qcow2:/"]);
    place.ok(&["mkfs", "-qF", "-z", "undo", "disk.qcow2"]);
    assert_ne!(place.ok(&["find", "disk.qcow2:/"]), before);
    place.ok(&["undo", "undo", "disk.qcow2"]);
    assert_eq!(place.ok(&["find", "disk.qcow2:/"]), before);
    // What is removed is given back.
    place.ok(&["rm", "-r", "disk.qcow2:/a"]);
    place.ok(&["trim", "disk.qcow2"]);
    qemu_img(&["check", "-q", text(&image)]);
    // Compressed clusters can be read.
    let packed = place.path("packed.qcow2");
    qemu_img(&[
        "convert",
        "-c",
        "-O",
        "qcow2",
        text(&place.path("raw")),
        text(&packed),
    ]);
    assert_eq!(place.ok(&["cat", "packed.qcow2:/a/b/file"]).len(), 3 << 20);
}

#[test]
fn what_qcow2_images_may_have_besides_is_named() {
    let place = Place::new();
    let image = place.path("image.qcow2");
    let create = ["create", "-q", "-f", "qcow2", "-o"];
    for (options, part) in [
        ("compression_type=zstd", "compressed by zstd"),
        ("extended_l2=on", "extended L2 entries"),
    ] {
        let last = [options, text(&image), "8M"];
        qemu_img(&[&create[..], &last].concat());
        let said = place.fails(2, &["ls", "image.qcow2:/"]);
        assert!(
            said.contains(part) && said.contains("qemu-img convert"),
            "{said}"
        );
    }
    qemu_img(&["create", "-q", "-f", "qcow2", text(&image), "8M"]);
    place.ok(&["mkfs", "-q", "image.qcow2"]);
    let file = fs::File::options().write(true).open(&image).unwrap();
    // The bit that QEMU sets while it writes.
    std::os::unix::fs::FileExt::write_all_at(&file, &[1], 79).unwrap();
    let said = place.fails(2, &["ls", "image.qcow2:/"]);
    assert!(said.contains("qemu-img check -r all"), "{said}");
    qemu_img(&["check", "-q", "-r", "all", text(&image)]);
    place.ok(&["ls", "image.qcow2:/"]);
}

#[test]
fn an_image_does_not_open_files_that_it_names() {
    let place = Place::new();
    place.image("secret", "ext4", 8);
    let format = ["create", "-q", "-f", "qcow2"];
    let over = place.path("over.qcow2");
    let secret = place.path("secret");
    qemu_img(
        &[
            &format[..],
            &["-b", text(&secret), "-F", "raw", text(&over)],
        ]
        .concat(),
    );
    let said = place.fails(2, &["ls", "over.qcow2:/"]);
    assert!(said.contains("a file that it names"), "{said}");
    let data = format!(
        "data_file={},data_file_raw=on",
        place.path("data").display()
    );
    let split = place.path("split.qcow2");
    qemu_img(&[&format[..], &["-o", &data, text(&split), "8M"]].concat());
    let said = place.fails(2, &["ls", "split.qcow2:/"]);
    assert!(said.contains("in another file"), "{said}");
    let descriptor = "# Disk DescriptorFile\nversion=1\nRW 16384 FLAT \"secret\" 0\n";
    fs::write(place.path("named.vmdk"), descriptor).unwrap();
    let said = place.fails(2, &["ls", "named.vmdk:/"]);
    assert!(said.contains("named-flat.vmdk"), "{said}");
}

#[test]
fn a_vmdk_that_may_only_be_read_is_not_written() {
    let place = Place::new();
    place.image("image", "ext4", 8);
    place.ok(&["convert", "-q", "image", "disk.vmdk"]);
    place.ok(&["mkdir", "disk.vmdk:/written"]);
    let descriptor = fs::read_to_string(place.path("disk.vmdk")).unwrap();
    let descriptor = descriptor.replace("\nRW ", "\nRDONLY ");
    fs::write(place.path("disk.vmdk"), descriptor).unwrap();
    assert_eq!(place.ok(&["ls", "disk.vmdk:/"]), "lost+found\nwritten\n");
    let said = place.fails(1, &["mkdir", "disk.vmdk:/more"]);
    assert!(said.contains("RDONLY"), "{said}");
    assert_eq!(place.ok(&["ls", "disk.vmdk:/"]), "lost+found\nwritten\n");
}

#[test]
fn compressed_images_are_read() {
    let place = Place::new();
    place.image("disk", "ext4", 32);
    edit(&place, "disk");
    for (program, name) in [("gzip", "disk.gz"), ("zstd", "disk.zst"), ("xz", "disk.xz")] {
        let packed = Command::new(program)
            .args(["-1", "-c"])
            .arg(place.path("disk"))
            .output()
            .unwrap();
        fs::write(place.path(name), &packed.stdout).unwrap();
        assert_eq!(
            place.ok(&["cat", &format!("{name}:/a/b/file")]).len(),
            3 << 20
        );
        let said = place.fails(1, &["rm", &format!("{name}:/a/b/file")]);
        assert!(said.contains("can only be read"), "{said}");
        assert!(fs::read(place.path(name)).unwrap() == packed.stdout);
        let half = &packed.stdout[..packed.stdout.len() / 2];
        fs::write(place.path(name), half).unwrap();
        let said = place.fails(2, &["ls", &format!("{name}:/")]);
        assert!(said.contains("damaged"), "{said}");
    }
}

/// A file that was cut short is told by its format, whatever is asked of it, and nothing is made.
#[test]
fn truncated_images_are_refused() {
    let place = Place::new();
    place.image("raw", "ext4", 32);
    edit(&place, "raw");
    for name in ["whole.qcow2", "whole.simg", "whole.vhd", "whole.vmdk"] {
        place.ok(&["convert", "-q", "raw", name]);
    }
    let cut = |from: &str, to: &str| {
        let bytes = fs::read(place.path(from)).unwrap();
        fs::write(place.path(to), &bytes[..bytes.len() / 3 * 2]).unwrap();
    };
    for (name, reason) in [
        ("whole.qcow2", "is a truncated qcow2 image"),
        ("whole.simg", "is a damaged Android sparse image"),
        ("whole.vhd", "the image is truncated"),
        ("raw", "the image is truncated"),
    ] {
        let image = format!("cut-{name}");
        cut(name, &image);
        let mut refusals = vec![
            place.fails(1, &["convert", "-q", &image, "made"]),
            place.fails(2, &["ls", &image]),
            place.fails(1, &["mkdir", &format!("{image}:/new")]),
        ];
        if name.ends_with("qcow2") || name.ends_with("simg") {
            refusals.push(place.fails(8, &["check", &image]));
            refusals.push(place.fails(1, &["info", &image]));
        }
        for said in refusals {
            assert!(said.contains(&image), "{name}: {said}");
            assert!(
                said.contains(reason) || said.contains("can only be read"),
                "{name}: {said}"
            );
        }
        assert!(!place.path("made").exists(), "{name}");
    }
    cut("whole-flat.vmdk", "cut-flat.vmdk");
    let descriptor = fs::read_to_string(place.path("whole.vmdk")).unwrap();
    let descriptor = descriptor.replace("whole-flat", "cut-flat");
    fs::write(place.path("cut.vmdk"), descriptor).unwrap();
    let said = place.fails(1, &["convert", "-q", "cut.vmdk", "made"]);
    assert!(
        said.contains("cut.vmdk") && said.contains("cut-flat.vmdk"),
        "{said}"
    );
    // As it is, for who says so.
    place.ok(&["convert", "-q", "-f", "raw", "cut-raw", "made"]);
    assert!(fs::read(place.path("made")).unwrap() == fs::read(place.path("cut-raw")).unwrap());
    // What the message of qcow2 says.
    let said = place.fails(2, &["ls", "cut-whole.qcow2"]);
    let length = said.rsplit("truncate -s ").next().unwrap();
    let length: u64 = length.split(' ').next().unwrap().parse().unwrap();
    let file = fs::File::options()
        .write(true)
        .open(place.path("cut-whole.qcow2"))
        .unwrap();
    file.set_len(length).unwrap();
    place.ok(&["ls", "cut-whole.qcow2"]);
}

#[test]
fn other_formats_are_refused_by_their_name() {
    let place = Place::new();
    for (format, name) in [("vhdx", "VHDX"), ("vpc", "dynamic VHD"), ("vdi", "VDI")] {
        let image = place.path(format);
        qemu_img(&["create", "-q", "-f", format, text(&image), "8M"]);
        let said = place.fails(2, &["ls", &format!("{format}:/")]);
        assert!(
            said.contains(name) && said.contains("qemu-img convert"),
            "{said}"
        );
    }
    for (start, name, program) in [
        (&b"EVF\x09\x0d\x0a\xff\x00"[..], "EnCase", "ewfexport"),
        (b"BZh9", "packed by bzip2", "bunzip2"),
    ] {
        let mut bytes = start.to_vec();
        bytes.resize(4096, 0);
        fs::write(place.path("foreign"), bytes).unwrap();
        let said = place.fails(2, &["ls", "foreign"]);
        assert!(said.contains(name) && said.contains(program), "{said}");
        assert!(!said.contains("qemu-img"), "{said}");
    }
}

#[test]
fn conversions_hold_the_same_bytes() {
    let place = Place::new();
    // No multiple of what some formats count in.
    let raw = place.image("raw", "ext4", 48);
    edit(&place, "raw");
    for (name, format) in [
        ("a.qcow2", "qcow2"),
        ("a.vmdk", "vmdk"),
        ("a.vhd", "vpc"),
        ("a.raw", "raw"),
    ] {
        place.ok(&["convert", "-q", "raw", name]);
        let image = place.path(name);
        let compared = [
            "compare",
            "-q",
            "-f",
            "raw",
            "-F",
            format,
            text(&raw),
            text(&image),
        ];
        qemu_img(&compared);
        if format == "qcow2" {
            qemu_img(&["check", "-q", text(&image)]);
        }
        // It is an image like others, and gives back what it was made of.
        edit(&place, name);
        place.ok(&["convert", "-q", "-F", name, "back.img"]);
        assert_clean(&place.path("back.img"));
        let said = place.fails(1, &["convert", "raw", name]);
        assert!(said.contains("--force"), "{said}");
    }
    place.ok(&["convert", "-q", "raw", "a.simg"]);
    assert_eq!(place.ok(&["cat", "a.simg:/a/b/file"]).len(), 3 << 20);
    place.ok(&["convert", "-q", "-F", "a.simg", "back.img"]);
    assert!(fs::read(&raw).unwrap() == fs::read(place.path("back.img")).unwrap());
    // Sparse stays sparse.
    use std::os::unix::fs::MetadataExt;
    for name in ["a.simg", "a.qcow2", "back.img"] {
        let taken = fs::metadata(place.path(name)).unwrap().blocks() * 512;
        assert!(taken < 16 << 20, "{name}: {taken}");
    }
}

/// What was closed keeps nobody from the disk, though a file of it is still open.
#[test]
fn a_closed_partition_gives_its_disk_back() {
    let place = Place::new();
    place.image("raw", "ext4", 16);
    place.ok(&["convert", "-q", "--gpt", "raw", "disk.img"]);
    let address = Address {
        image: format!("{}@p1", place.path("disk.img").display()).into(),
        path: "/".into(),
    };
    let mut held = Vec::new();
    for name in ["a", "b"] {
        let fs = Images::new(None)
            .open_only(&address, Access::Write)
            .unwrap();
        held.push(fs.create(name).unwrap());
        fs.close().unwrap();
    }
    drop(held);
    assert_eq!(place.ok(&["ls", "disk.img@p1:/"]), "a\nb\nlost+found\n");
}

/// Tools that flash an image leave what the device has where a chunk is one that nobody cares for.
#[test]
fn zeros_of_an_android_image_are_written() {
    let place = Place::new();
    let raw = place.image("raw", "ext4", 32);
    place.ok(&["convert", "-q", "-O", "android-sparse", "raw", "sparse"]);
    let sparse = fs::read(place.path("sparse")).unwrap();
    let word = |at: usize| u32::from_le_bytes(sparse[at..at + 4].try_into().unwrap());
    let (mut at, mut blocks) = (28, 0);
    let mut kinds = Vec::new();
    for _ in 0..word(20) {
        let kind = word(at) & 0xffff;
        if kind == 0xcac2 {
            assert_eq!((word(at + 8), word(at + 12)), (16, 0));
        }
        kinds.push(kind);
        blocks += word(at + 4);
        at += word(at + 8) as usize;
    }
    assert_eq!((blocks, at), (32 << 8, sparse.len()));
    assert!(
        kinds.contains(&0xcac1) && kinds.contains(&0xcac2),
        "{kinds:x?}"
    );
    assert!(!kinds.contains(&0xcac3), "{kinds:x?}");
    assert!(sparse.len() < 8 << 20);
    place.ok(&["convert", "-q", "sparse", "back"]);
    assert!(fs::read(&raw).unwrap() == fs::read(place.path("back")).unwrap());
}

#[test]
fn a_partition_table_is_put_around() {
    let place = Place::new();
    place.image("raw", "ext4", 16);
    edit(&place, "raw");
    for name in ["disk.img", "disk.qcow2"] {
        let json = place.ok(&["convert", "--json", "--gpt", "raw", name]);
        assert!(
            json.contains("\"partition_start_bytes\": 1048576"),
            "{json}"
        );
        assert_eq!(
            place.ok(&["cat", &format!("{name}@p1:/a/b/file")]).len(),
            3 << 20
        );
        place.ok(&["convert", "-q", "-F", &format!("{name}@p1"), "back.img"]);
        assert_clean(&place.path("back.img"));
    }
    let shown = run(
        "sfdisk",
        &["--verify".as_ref(), place.path("disk.img").as_os_str()],
    );
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("No errors detected"), "{shown}");
    fs::write(place.path("empty"), "").unwrap();
    let said = place.fails(1, &["convert", "--gpt", "empty", "none.img"]);
    assert!(said.contains("empty"), "{said}");
    assert!(!place.path("none.img").exists());
    // A whole disk that was cut short, too.
    let disk = fs::read(place.path("disk.img")).unwrap();
    fs::write(place.path("short.img"), &disk[..disk.len() / 2]).unwrap();
    let said = place.fails(1, &["convert", "short.img", "none.img"]);
    assert!(said.contains("short.img: the image is truncated"), "{said}");
    place.fails(2, &["ls", "short.img@p1"]);
    assert!(!place.path("none.img").exists());
}

/// What fails leaves neither a half of the output nor of what was there.
#[test]
fn a_conversion_that_fails_leaves_nothing() {
    let place = Place::new();
    place.image("raw", "ext4", 16);
    fs::write(place.path("there.qcow2"), "kept").unwrap();
    fs::write(place.path("bad.gz"), b"\x1f\x8b\x08\x00damaged").unwrap();
    place.fails(1, &["convert", "-F", "bad.gz", "there.qcow2"]);
    place.fails(1, &["convert", "none", "out.qcow2"]);
    place.fails(1, &["convert", "-f", "qcow2", "raw", "out.qcow2"]);
    place.fails(2, &["convert", "-O", "gzip", "raw", "out"]);
    let said = place.fails(1, &["convert", "raw", "-"]);
    assert!(said.contains("standard output"), "{said}");
    assert_eq!(fs::read(place.path("there.qcow2")).unwrap(), b"kept");
    let left: Vec<_> = fs::read_dir(place.path("."))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name != "raw" && name != "there.qcow2" && name != "bad.gz")
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// nbdkit and qemu-nbd, with all that they can do: made, edited, built onto, converted.
#[test]
fn exports_are_images() {
    let place = Place::new();
    place.image("source", "ext4", 32);
    fs::create_dir_all(place.path("tree/sub")).unwrap();
    fs::write(place.path("tree/sub/file"), "built").unwrap();
    qemu_img(&["create", "-q", "-f", "qcow2", text(&place.path("q")), "64M"]);
    let q = place.path("q");
    for (program, arguments) in [
        ("nbdkit", vec!["memory", "64M"]),
        (
            "nbdkit",
            vec![
                "--filter=blocksize-policy",
                "memory",
                "64M",
                "blocksize-minimum=4096",
            ],
        ),
        ("nbdkit", vec!["--no-sr", "memory", "64M"]),
        ("qemu-nbd", vec!["-f", "qcow2", "--discard=unmap", text(&q)]),
    ] {
        let server = Server::start(&place, program, &arguments);
        let url = server.url();
        place.ok(&["mkfs", "-q", "-F", &url]);
        edit(&place, &url);
        place.ok(&["trim", &url]);
        place.ok(&["convert", "-q", "-F", &url, "copy.img"]);
        assert_clean(&place.path("copy.img"));
        place.ok(&["build", "-q", "-F", &url, "tree"]);
        assert_eq!(place.ok(&["cat", &server.at("/sub/file")]), "built");
        let said = place.fails(1, &["build", &url, "tree"]);
        assert!(said.contains("--force"), "{said}");
        place.ok(&["convert", "-q", "-F", "-O", "raw", "source", &url]);
        place.ok(&["convert", "-q", "-F", &url, "copy.img"]);
        let copied = fs::read(place.path("copy.img")).unwrap();
        let source = fs::read(place.path("source")).unwrap();
        assert!(copied[..source.len()] == source);
    }
}

/// An export that was overwritten in part is neither the old disk nor the new one.
#[test]
fn a_conversion_that_fails_leaves_an_export_without_its_start() {
    let place = Place::new();
    let source = place.image("source", "ext4", 16);
    edit(&place, "source");
    let broken = Server::broken(&place, &source, "[ $4 -ge 8388608 ]", "false");
    let target = Server::start(&place, "nbdkit", &["memory", "16M"]);
    let url = target.url();
    place.ok(&["mkfs", "-q", "-F", &url]);
    edit(&place, &url);
    let said = place.fails(1, &["convert", "-q", "-F", &broken.url(), &url]);
    let wanted = format!("; what was at {url} is overwritten in part\n");
    assert!(said.contains("cannot read: I/O error"), "{said}");
    assert!(said.contains(&wanted), "{said}");
    place.fails(2, &["ls", &url]);
    place.ok(&["convert", "-q", "-f", "raw", &url, "left"]);
    let left = fs::read(place.path("left")).unwrap();
    assert!(left[..128 << 10].iter().all(|byte| *byte == 0));
    place.ok(&["convert", "-q", "-F", "source", &url]);
    assert_eq!(place.ok(&["cat", &target.at("/a/b/file")]).len(), 3 << 20);
    let said = place.fails(1, &["convert", "-q", "-F", &url, &url]);
    assert!(said.contains("is what is read, too"), "{said}");
    place.ok(&["convert", "-q", "-F", &url, "left"]);
    assert!(fs::read(place.path("left")).unwrap() == fs::read(&source).unwrap());
}

/// A commit that fails leaves the files where they were.
#[test]
fn what_is_moved_stays_until_its_copy_is_on_the_image() {
    let place = Place::new();
    let image = place.image("image", "ext4", 64);
    for name in ["one", "two"] {
        fs::write(place.path(name), name).unwrap();
    }
    // The superblock is written first.
    let server = Server::broken(&place, &image, "false", "[ $4 -ne 1024 ]");
    let said = place.fails(1, &["mv", "one", "two", &server.at("/")]);
    assert!(said.contains("; the sources stay\n"), "{said}");
    drop(server);
    for name in ["one", "two"] {
        assert_eq!(fs::read(place.path(name)).unwrap(), name.as_bytes());
    }
    let server = Server::start(&place, "nbdkit", &["file", text(&image)]);
    place.ok(&["mv", "one", "two", &server.at("/")]);
    assert_eq!(
        place.ok(&["cat", &server.at("/one"), &server.at("/two")]),
        "onetwo"
    );
    assert!(!place.path("one").exists() && !place.path("two").exists());
    drop(server);
    assert_clean(&image);
}

/// A repair of an export has its undo file in the working directory, and an error of the server has
/// the URL once.
#[test]
fn an_export_is_repaired_and_names_itself_once() {
    let place = Place::new();
    let image = place.image("image", "ext4", 16);
    edit(&place, "image");
    run(
        "debugfs",
        &["-w", "-R", "sif /a/b/file links_count 7", text(&image)].map(std::ffi::OsStr::new),
    );
    let before = fs::read(&image).unwrap();
    let server = Server::start(&place, "nbdkit", &["file", text(&image)]);
    let url = server.url();
    let repaired = place.finefs(&["repair", &url]).output().unwrap();
    assert_eq!(repaired.status.code(), Some(1), "{repaired:?}");
    assert_clean(&image);
    place.ok(&["undo", "nbd.undo", &url]);
    let said = place.fails(8, &["repair", &url]);
    assert!(said.contains("nbd.undo is there already"), "{said}");
    assert!(fs::read(&image).unwrap() == before);
    fs::remove_file(place.path("nbd.undo")).unwrap();
    drop(server);

    let failing = [
        "--filter=error",
        "file",
        text(&image),
        "error-pread-rate=100%",
    ];
    let server = Server::start(&place, "nbdkit", &failing);
    let url = server.url();
    for words in [
        &["convert", "-q", &url, "made"][..],
        &["ls", &url],
        &["check", &url],
        &["cp", &server.at("/a/b/file"), "made"],
        &["resize", "-M", &url],
    ] {
        let output = place.finefs(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{words:?}");
        assert!(said.contains("I/O error"), "{words:?}: {said}");
        for line in said.lines() {
            assert_eq!(line.matches("nbd+unix:").count(), 1, "{words:?}: {said}");
        }
    }
}

#[test]
fn a_read_only_export_is_read() {
    let place = Place::new();
    let image = place.image("image", "ext4", 16);
    edit(&place, "image");
    let server = Server::start(&place, "nbdkit", &["-r", "file", text(&image)]);
    assert_eq!(place.ok(&["cat", &server.at("/a/b/file")]).len(), 3 << 20);
    let said = place.fails(1, &["rm", &server.at("/a/b/file")]);
    assert!(said.contains("read-only"), "{said}");
}

/// A server that fails writes or all of it, and one that ends: an error that names it, and an image
/// from which only what was not committed is gone.
#[test]
fn a_failing_server_leaves_a_sound_image() {
    let place = Place::new();
    fs::write(place.path("big"), vec![3; 8 << 20]).unwrap();
    for (filter, option) in [
        ("error", "error-pwrite-rate=10%"),
        ("error", "error-rate=20%"),
    ] {
        let image = place.image("image", "ext4", 64);
        edit(&place, "image");
        let filter = format!("--filter={filter}");
        let server = Server::start(&place, "nbdkit", &[&filter, "file", text(&image), option]);
        // By chance all may go well.
        for round in 0..4 {
            let to = server.at(&format!("/copy{round}"));
            let output = place.finefs(&["cp", "big", &to]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success() || said.contains("nbd+unix://"),
                "{said}"
            );
        }
        drop(server);
        run("e2fsck", &["-fp".as_ref(), image.as_os_str()]);
        assert_eq!(place.ok(&["cat", "image:/a/b/file"]).len(), 3 << 20);
    }
    let [reads, all] = ["--filter=error", "error-pread-rate=100%"];
    let image = place.image("image", "ext4", 64);
    edit(&place, "image");
    // What cannot be read is no damage that e2fsck is for, nor is it a missing file.
    let after = "error-file=".to_owned() + text(&place.path("fails"));
    let server = Server::start(
        &place,
        "nbdkit",
        &[reads, "file", text(&image), all, &after],
    );
    let export = server.url();
    place.ok(&["build", "-q", "built", &export]);
    fs::write(place.path("fails"), "").unwrap();
    for (words, status) in [
        (&["check", &export][..], 8),
        (&["repair", &export], 8),
        (&["resize", &export, "32m"], 1),
        (&["dump", &export, "inode", "2"], 1),
        (&["build", "again", &export], 1),
    ] {
        let said = place.fails(status, words);
        assert!(
            said.contains("nbd+unix://") && !said.contains("e2fsck"),
            "{words:?}: {said}"
        );
        assert!(!said.contains("No such file"), "{words:?}: {said}");
    }
    drop(server);
    let said = place.fails(2, &["ls", "nbd+unix:///?socket=/nonexistent:/"]);
    assert!(said.contains("no such socket"), "{said}");
}
