//! Operands: images, partitions, offsets, paths of the host.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use crate::support::{Place, assert_clean};

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

    for (operand, label) in [("disk@p1", "boot"), ("disk@data", "data")] {
        let shown = place.ok(&["info", operand]);
        assert!(shown.contains(&format!("{label}\n")), "{shown}");
    }

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

/// All that does not lie in a partition is as it was.
#[test]
fn file_systems_are_made_in_partitions_and_nowhere_else() {
    let place = Place::new();
    disk(&place);
    let before = fs::read(place.path("disk")).unwrap();
    let (p1, p5) = (1 << 20..17 << 20, 20 << 20..36 << 20);
    let assert_rest = |changed: &std::ops::Range<usize>| {
        let after = fs::read(place.path("disk")).unwrap();
        assert_eq!(after.len(), before.len());
        assert!(after[..changed.start] == before[..changed.start]);
        assert!(after[changed.end..] == before[changed.end..]);
        fs::write(place.path("part"), &after[changed.clone()]).unwrap();
        assert_clean(&place.path("part"));
        fs::write(place.path("disk"), &before).unwrap();
    };
    fs::create_dir(place.path("tree")).unwrap();
    fs::write(place.path("tree/file"), vec![b'x'; 3 << 20]).unwrap();

    let said = place.fails(1, &["mkfs", "disk@boot"]);
    assert!(said.contains("labelled 'boot'"), "{said}");
    let made = place.ok(&["mkfs", "-F", "--json", "-L", "new", "disk@p1"]);
    assert!(made.contains("\"size_bytes\": 16777216"), "{made}");
    assert!(made.contains("\"image\": \"disk@p1\""), "{made}");
    assert_eq!(place.ok(&["ls", "disk@new"]), "lost+found\n");
    assert_rest(&p1);
    place.ok(&["mkfs", "-qF", "-d", "tree", "disk@data"]);
    assert_eq!(place.ok(&["ls", "disk@p5"]), "file\nlost+found\n");
    assert_rest(&p5);

    let said = place.fails(1, &["build", "disk@p5", "tree"]);
    assert!(said.contains("is a partition (--force"), "{said}");
    let built = place.ok(&["build", "--force", "disk@p5", "tree"]);
    assert!(built.starts_with("disk@p5: ext4 of 16M"), "{built}");
    assert_eq!(place.ok(&["ls", "disk@5"]), "file\nlost+found\n");
    assert_rest(&p5);
    for itself in ["disk@p5", "disk@data:/data-dir", "disk"] {
        let said = place.fails(1, &["build", "-F", "disk@p5", itself]);
        assert!(said.contains("copy it first"), "{said}");
        assert!(fs::read(place.path("disk")).unwrap() == before);
    }
    let said = place.fails(1, &["build", "-F", "-O", "journal_dev", "disk@p5", "tree"]);
    assert!(said.contains("holds no files"), "{said}");
    assert!(fs::read(place.path("disk")).unwrap() == before);
    // One that fails leaves a partition that nobody takes for a file system.
    fs::write(place.path("tree/more"), vec![b'x'; 30 << 20]).unwrap();
    let said = place.fails(1, &["build", "--force", "disk@p1", "tree"]);
    assert!(said.contains("do not fit"), "{said}");
    assert!(fs::read(place.path("disk")).unwrap()[p1.end..] == before[p1.end..]);
    fs::write(place.path("disk"), &before).unwrap();

    for command in [&["mkfs", "-F"][..], &["build", "-F"]] {
        let words = [command, &["--size", "17m", "disk@p1", "tree"]].concat();
        let said = place.fails(1, &words[..words.len() - usize::from(command[0] == "mkfs")]);
        assert!(said.contains("the partition has 16777216 bytes"), "{said}");
    }
    let said = place.fails(1, &["mkfs", "--size", "1m", "disk@p9"]);
    assert!(said.contains("no partition p9; there are p1"), "{said}");
    assert!(fs::read(place.path("disk")).unwrap() == before);
    // Where there is no disk, it is a name as any other.
    place.ok(&["mkfs", "-q", "-t", "ext2", "--size", "1m", "none@p1"]);
    assert_eq!(place.ok(&["ls", "none@p1"]), "lost+found\n");
}

/// A disk as a whole is told from a file system, and what is in it is shown.
#[test]
fn partitions_of_a_disk_are_shown() {
    let place = Place::new();
    disk(&place);
    let shown = place.ok(&["info", "disk"]);
    assert!(shown.starts_with("disk: a disk of "), "{shown}");
    for part in [
        "disk@p1: ",
        "an ext2/3/4 file system labelled 'boot'",
        "disk@p5: ",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
    let shown = place.ok(&["info", "--json", "disk:"]);
    assert!(
        shown.contains("\"number\": 5") && shown.contains("labelled 'data'"),
        "{shown}"
    );
    let said = place.fails(8, &["check", "disk"]);
    assert!(
        said.contains("name one as in disk@p1: p1 (boot), p5 (data)"),
        "{said}"
    );
    // Its root is the image.
    assert_eq!(
        place.ok(&["info", "disk@p1:"]),
        place.ok(&["info", "disk@p1"])
    );
    place.ok(&["check", "disk@p1:"]);
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

/// One command has two partitions of a disk open, which others are kept from meanwhile.
#[test]
fn what_one_partition_has_goes_to_another() {
    let place = Place::new();
    disk(&place);
    fs::create_dir(place.path("tree")).unwrap();
    for name in ["a", "b"] {
        fs::write(place.path("tree").join(name), name.repeat(100_000)).unwrap();
    }
    place.ok(&["build", "--onto", "disk@p1", "tree"]);
    place.ok(&["build", "-F", "disk@p5", "disk@boot"]);
    assert_eq!(place.ok(&["diff", "disk@p1:/", "disk@p5:/"]), "");
    place.ok(&["build", "--onto", "disk@p1:/boot-dir", "disk@p5"]);
    assert_eq!(place.ok(&["diff", "disk@p1:/boot-dir/a", "disk@p5:/a"]), "");
    let said = place.fails(1, &["build", "--onto", "disk@p1:/boot-dir", "disk@boot"]);
    assert!(said.contains("is the image that is changed"), "{said}");
    place.ok(&["cp", "-r", "tree", "disk@p1:/"]);
    place.ok(&["cp", "-rp", "disk@p1:/tree", "disk@p5:/copy"]);
    assert_eq!(place.ok(&["diff", "disk@p1:/tree", "disk@p5:/copy"]), "");
    place.ok(&["mv", "disk@p5:/copy/a", "disk@boot:/moved"]);
    assert_eq!(place.ok(&["cat", "disk@p1:/moved"]), "a".repeat(100_000));
    assert_eq!(place.ok(&["ls", "disk@p5:/copy"]), "b\n");
    for (name, at) in [("boot", 1_u64), ("data", 20)] {
        let mut part = vec![0; 16 << 20];
        let disk = File::open(place.path("disk")).unwrap();
        disk.read_exact_at(&mut part, at << 20).unwrap();
        fs::write(place.path(name), part).unwrap();
        assert_clean(&place.path(name));
    }
    // Somebody else has it.
    let held = File::open(place.path("disk")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockShared).unwrap();
    let said = place.fails(1, &["cp", "-r", "disk@p1:/tree", "disk@p5:/more"]);
    assert!(said.contains("in use"), "{said}");
}

#[test]
fn what_mkfs_keeps_of_a_partition_is_put_back_there() {
    let place = Place::new();
    disk(&place);
    let before = fs::read(place.path("disk")).unwrap();
    for undo in ["finefs", "e2undo"] {
        place.ok(&["mkfs", "-qF", "-z", undo, "disk@p5"]);
        assert_eq!(place.ok(&["ls", "disk@p5"]), "lost+found\n");
        match undo {
            "finefs" => drop(place.ok(&["undo", undo, "disk@p5"])),
            _ => {
                let mut command = std::process::Command::new(undo);
                let command = command.args(["-o", "20971520", undo, "disk"]);
                let status = command.current_dir(place.path(".")).status();
                assert!(status.unwrap().success());
            }
        }
        assert!(fs::read(place.path("disk")).unwrap() == before, "{undo}");
    }
}

#[test]
fn what_mkfs_keeps_of_a_partition_is_put_back_there_by_force_too() {
    let place = Place::new();
    disk(&place);
    let before = fs::read(place.path("disk")).unwrap();
    for (size, image) in [
        (&[][..], &["disk@p5"][..]),
        (&["--size", "16m"], &["--offset", "20m", "disk"]),
    ] {
        place.ok(&[&["mkfs", "-qF", "-z", "undo"], size, image].concat());
        // The superblock is another one than mkfs has made.
        let file = File::options().write(true).open(place.path("disk"));
        let label_at = (20 << 20) + 1024 + 120;
        file.unwrap().write_all_at(b"changed", label_at).unwrap();
        let said = place.fails(1, &[&["undo", "undo"], image].concat());
        assert!(said.contains("superblocks differ"), "{said}");
        place.ok(&[&["undo", "-f", "undo"], image].concat());
        assert!(fs::read(place.path("disk")).unwrap() == before, "{image:?}");
        fs::remove_file(place.path("undo")).unwrap();
    }
}
