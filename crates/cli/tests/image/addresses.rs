//! Operands: images, partitions, offsets, paths of the host.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use crate::support::Place;

/// A disk with an MBR: a file system that is called "boot" at 1 MiB, and one in a logical
/// partition at 20 MiB.
fn disk(place: &Place) {
    let path = place.path("disk");
    let file = File::create(&path).unwrap();
    file.set_len(40 << 20).unwrap();
    let record = |sector: u64, entries: &[(u8, u32, u32)]| {
        let mut bytes = [0; 512];
        bytes[510..].copy_from_slice(&[0x55, 0xAA]);
        for (index, (kind, start, length)) in entries.iter().enumerate() {
            let at = 446 + 16 * index;
            bytes[at + 4] = *kind;
            bytes[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
            bytes[at + 12..at + 16].copy_from_slice(&length.to_le_bytes());
        }
        file.write_all_at(&bytes, sector * 512).unwrap();
    };
    record(0, &[(0x83, 2048, 16 << 11), (0x05, 18 << 11, 22 << 11)]);
    record(18 << 11, &[(0x83, 2 << 11, 16 << 11)]);
    for (name, at) in [("boot", 1), ("data", 20)] {
        let part = place.image_with("part", 16, &["-t", "ext4", "-L", name]);
        place.ok(&["mkdir", &format!("part:/{name}-dir")]);
        let bytes = fs::read(part).unwrap();
        file.write_all_at(&bytes, at << 20).unwrap();
    }
}

#[test]
fn partitions_are_named_by_number_label_or_offset() {
    let place = Place::new();
    disk(&place);
    for (operand, name) in [
        ("disk@p1:/", "boot-dir"),
        ("disk@1:/", "boot-dir"),
        ("disk@boot", "boot-dir"),
        ("disk@p5:", "data-dir"),
        ("./disk@data:/", "data-dir"),
    ] {
        let listed = place.ok(&["ls", operand]);
        assert_eq!(listed, format!("{name}\nlost+found\n"), "{operand}");
    }
    let listed = place.ok(&["ls", "--offset", "20m", "disk:/data-dir", "disk"]);
    assert!(listed.contains("data-dir"), "{listed}");
    let said = place.fails(1, &["cat", "disk@p7:/x"]);
    assert_eq!(
        said,
        "finefs cat: disk: no partition p7; there are p1 (boot), p5 (data)\n"
    );
    let said = place.fails(2, &["ls", "disk"]);
    assert!(
        said.contains("has a partition table; name one as in disk@p1"),
        "{said}"
    );

    fs::write(place.path("file"), "moved").unwrap();
    place.ok(&["cp", "file", "disk@p1:/boot-dir"]);
    place.ok(&["cp", "file", "disk@p5:/"]);
    assert_eq!(
        place.ok(&["cat", "disk@p5:/file", "disk@boot:/boot-dir/file"]),
        "movedmoved"
    );

    // A file that has the whole name is that file.
    fs::copy(place.path("part"), place.path("disk@p1")).unwrap();
    assert!(place.ok(&["ls", "disk@p1:/"]).contains("data-dir"));
}

/// sfdisk and the kernel agree on where partitions are; so do we.
#[test]
fn a_gpt_of_sfdisk_is_read() {
    let place = Place::new();
    File::create(place.path("disk"))
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    let script = "label: gpt\nstart=4096, size=16384, name=one\nsize=32768, name=root\n";
    let Ok(mut child) = std::process::Command::new("sfdisk")
        .arg("-q")
        .arg(place.path("disk"))
        .stdin(std::process::Stdio::piped())
        .spawn()
    else {
        eprintln!("skipped: no sfdisk");
        return;
    };
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let part = place.image("part", "ext4", 16);
    place.ok(&["mkdir", "part:/here"]);
    let bytes = fs::read(part).unwrap();
    let disk = File::options()
        .write(true)
        .open(place.path("disk"))
        .unwrap();
    // Partitions start at multiples of 1 MiB.
    disk.write_all_at(&bytes, 10 << 20).unwrap();
    assert!(place.ok(&["ls", "disk@root:/"]).contains("here"));
    assert!(place.ok(&["ls", "disk@p2:/"]).contains("here"));
}

#[test]
fn paths_of_the_host_are_told_from_images() {
    let place = Place::new();
    place.image("image", "ext4", 16);
    fs::write(place.path("a:b"), "host").unwrap();
    place.ok(&["cp", "./a:b", "image:/x"]);
    assert_eq!(place.ok(&["cat", "image:x"]), "host");
    fs::create_dir(place.path("dir:")).unwrap();
    place.ok(&["cp", "image:/x", "dir:/y"]);
    assert_eq!(fs::read(place.path("dir:/y")).unwrap(), b"host");
    let said = place.fails(1, &["cp", "a", "b"]);
    assert!(said.contains("no operand is in an image"), "{said}");
    let said = place.fails(1, &["rm", "image"]);
    assert!(said.contains("names no file in an image"), "{said}");
    let said = place.fails(1, &["cat", "none:/x"]);
    assert!(said.starts_with("finefs cat: none: no such file"), "{said}");
    let said = place.fails(1, &["cat", "image:/none"]);
    assert_eq!(said, "finefs cat: image:/none: no such file or directory\n");
}
