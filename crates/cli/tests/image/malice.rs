//! Images and archives that were made to do harm: nothing is written outside of where a copy goes,
//! nor elsewhere than an entry says.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use tar::{EntryType, Header};

use crate::support::{Place, assert_clean};

/// Replaces each occurrence of some bytes in an image by others of the same length.
fn patch(image: &Path, from: &[u8], to: &[u8]) {
    let mut bytes = fs::read(image).unwrap();
    let mut count = 0;
    let mut at = 0;
    while let Some(found) = bytes[at..]
        .windows(from.len())
        .position(|window| window == from)
    {
        at += found;
        bytes[at..at + to.len()].copy_from_slice(to);
        at += to.len();
        count += 1;
    }
    assert!(count > 0);
    fs::write(image, bytes).unwrap();
}

/// No checksums, so that names can be changed under the file system.
const BARE: [&str; 4] = ["-t", "ext4", "-O", "^metadata_csum,^has_journal"];

#[test]
fn links_of_an_image_lead_nowhere_else() {
    let place = Place::new();
    let image = place.image_with("image", 32, &BARE);
    let outside = place.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(place.path("file"), "from the image").unwrap();
    // A link to a directory of the host, and a directory that gets the same name.
    place.ok(&["mkdir", "-p", "image:/t/zzz-dir"]);
    place.ok(&["cp", "file", "image:/t/zzz-dir/planted"]);
    place.ok(&["ln", "-s", outside.to_str().unwrap(), "image:/t/aaa-lnk"]);
    patch(&image, b"zzz-dir", b"aaa-lnk");
    for arguments in [&["cp", "-r"][..], &["cp", "-a"], &["cp", "-rj1"]] {
        let mut copy = place.finefs(&[arguments, &["image:/t", "out"]].concat());
        copy.output().unwrap();
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        let _ = fs::remove_dir_all(place.path("out"));
    }
    // A link that an earlier copy has left is not followed either.
    let honest = place.image_with("honest", 32, &BARE);
    place.ok(&["mkdir", "-p", "honest:/t/way"]);
    place.ok(&["cp", "file", "honest:/t/way/planted"]);
    place.ok(&["cp", "file", "honest:/t/name"]);
    fs::create_dir_all(place.path("out2/t")).unwrap();
    std::os::unix::fs::symlink(&outside, place.path("out2/t/way")).unwrap();
    std::os::unix::fs::symlink(outside.join("new"), place.path("out2/t/name")).unwrap();
    let said = place.fails(1, &["cp", "-r", "honest:/t", "out2"]);
    assert!(said.contains("out2/t/way: is no directory"), "{said}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    // The file took the link's place.
    assert_eq!(
        fs::read(place.path("out2/t/name")).unwrap(),
        b"from the image"
    );
    assert!(!place.path("out2/t/name").is_symlink());
    assert_clean(&honest);
}

#[test]
fn names_that_are_paths_lead_nowhere() {
    let place = Place::new();
    for evil in ["x/evil", "../evi", "/evil0"] {
        let image = place.image_with("image", 32, &BARE);
        fs::write(place.path("file"), "from the image").unwrap();
        place.ok(&["mkdir", "-p", "image:/t/x"]);
        place.ok(&["cp", "file", "image:/t/NAMEXX"]);
        patch(&image, b"NAMEXX", evil.as_bytes());
        let mut copy = place.finefs(&["cp", "-r", "image:/t", "out"]);
        copy.output().unwrap();
        assert!(place.path("out/x").is_dir());
        for path in ["evi", "evil", "out/x/evil", "evil0"] {
            assert!(!place.path(path).exists(), "{evil} made {path}");
        }
        assert!(!Path::new("/evil0").exists());
        let _ = fs::remove_dir_all(place.path("out"));
    }
}

#[test]
fn links_in_an_image_are_resolved_in_it() {
    let place = Place::new();
    place.image("image", "ext4", 32);
    place.ok(&["mkdir", "image:/etc"]);
    place.with_input(&["cp", "-", "image:/etc/passwd"], b"of the image");
    place.ok(&["ln", "-s", "/etc/passwd", "image:/absolute"]);
    place.ok(&[
        "ln",
        "-s",
        "../../../../../etc/passwd",
        "image:/etc/relative",
    ]);
    let shown = place.ok(&[
        "cat",
        "image:/absolute",
        "image:/etc/relative",
        "image:/../../etc/passwd",
    ]);
    assert_eq!(shown, "of the image".repeat(3));
    place.ok(&["cp", "-L", "image:/absolute", "copy"]);
    assert_eq!(fs::read(place.path("copy")).unwrap(), b"of the image");
}

/// Deeper than a path may be long, and than a stack may be deep.
#[test]
fn a_deep_tree_is_copied_and_removed() {
    let place = Place::new();
    let image = place.image("image", "ext4", 64);
    let mut script = String::new();
    for _ in 0..3000 {
        script += "mkdir deep\ncd deep\n";
    }
    fs::write(place.path("script"), script).unwrap();
    let mut debugfs = Command::new("debugfs");
    debugfs.arg("-wf").arg(place.path("script")).arg(&image);
    assert!(debugfs.output().unwrap().status.success());
    let depth = |text: String| text.lines().count();
    assert_eq!(depth(place.ok(&["find", "image", "-name", "deep"])), 3000);
    place.ok(&["cp", "-a", "image:/deep", "image:/copy"]);
    place.ok(&["cp", "-a", "image:/deep", "out"]);
    let built = place.ok(&["build", "--json", "built", "out"]);
    // lost+found is one of them.
    assert!(built.contains("\"files\": 3000"), "{built}");
    assert_clean(&place.path("built"));
    place.ok(&["cp", "-a", "out", "image:/back"]);
    assert_eq!(depth(place.ok(&["find", "image:/back"])), 3000);
    place.ok(&["chmod", "-R", "700", "image:/back"]);
    place.ok(&["rm", "-r", "image:/back", "image:/deep", "image:/copy"]);
    assert_clean(&image);
    place.ok(&["mv", "out", "image:/in"]);
    assert!(!place.path("out").exists());
}

/// An archive of one file of four bytes, with these records before it.
fn archive_of(path: &Path, name: &str, records: &[(&str, &str)]) {
    let mut builder = tar::Builder::new(File::create(path).unwrap());
    let records = records.iter().map(|(key, value)| (*key, value.as_bytes()));
    builder.append_pax_extensions(records).unwrap();
    let mut header = Header::new_ustar();
    header.set_mode(0o644);
    header.set_size(4);
    builder
        .append_data(&mut header, name, &b"evil"[..])
        .unwrap();
    builder.finish().unwrap();
}

/// The owner of a file says what its attributes are.
#[test]
fn attributes_in_an_archive_are_no_records() {
    let place = Place::new();
    let archive = place.path("tar");
    let evil = "a\n19 path=etc/passwd\n20 linkpath=etc/evil\n12 size=999\n";
    let xattr = ("SCHILY.xattr.user.x", evil);
    archive_of(&archive, "home/joe", &[xattr, ("uid", "70"), ("gid", "71")]);
    let mut link = Header::new_ustar();
    link.set_entry_type(EntryType::Symlink);
    link.set_mode(0o777);
    link.set_size(0);
    let mut builder = tar::Builder::new(File::options().append(true).open(&archive).unwrap());
    let blocks = fs::metadata(&archive).unwrap().len() - 1024;
    builder.get_ref().set_len(blocks).unwrap();
    let record = [("SCHILY.xattr.trusted.x", evil.as_bytes())];
    builder.append_pax_extensions(record).unwrap();
    builder.append_link(&mut link, "home/link", "good").unwrap();
    builder.finish().unwrap();
    let listed = place.ok(&["tar", "-tf", "tar"]);
    assert_eq!(listed, "home/joe\nhome/link\n");
    place.ok(&["build", "-q", "image", "tar"]);
    assert_clean(&place.path("image"));
    assert_eq!(place.ok(&["ls", "image:/"]), "home\nlost+found\n");
    assert_eq!(
        place.ok(&["find", "image:/home/link", "-printf", "%l\n"]),
        "good\n"
    );
    let shown = place.ok(&["stat", "-c", "%s %u %g", "image:/home/joe"]);
    assert_eq!(shown, "4 70 71\n");
    // Behind such a value the library does not see how much data there is.
    archive_of(&archive, "file", &[xattr, ("size", "5")]);
    let said = place.fails(1, &["build", "-q", "-F", "image", "tar"]);
    let wanted = "finefs: tar: file: its extended header says 5 bytes, its header 4\n";
    assert_eq!(said, wanted);
}

/// What the names of GNU tar's own headers say counts still.
#[test]
fn long_names_are_those_of_the_headers_before_an_entry() {
    let place = Place::new();
    let name = "n".repeat(200);
    let mut builder = tar::Builder::new(File::create(place.path("tar")).unwrap());
    let mut header = Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(0);
    builder.append_data(&mut header, &name, &b""[..]).unwrap();
    header.set_entry_type(EntryType::Symlink);
    builder.append_link(&mut header, "link", &name).unwrap();
    header.set_entry_type(EntryType::Link);
    builder.append_link(&mut header, "hard", &name).unwrap();
    builder.finish().unwrap();
    assert_eq!(
        place.ok(&["tar", "-tf", "tar"]),
        format!("{name}\nlink\nhard\n")
    );
    place.ok(&["build", "-q", "image", "tar"]);
    assert_eq!(
        place.ok(&["find", "image:/link", "-printf", "%l\n"]),
        format!("{name}\n")
    );
    let file = format!("image:/{name}");
    assert_eq!(place.ok(&["stat", "-c", "%h", &file]), "2\n");
}

/// Memory would grow with the square of their depth.
#[test]
fn endless_paths_are_refused() {
    let place = Place::new();
    let path = "a/".repeat(100_000);
    archive_of(&place.path("tar"), "x", &[("path", &path)]);
    fs::write(
        place.path("list"),
        format!("/{path}x 0 100644 1 0 0 0 0.0 - - -\n"),
    )
    .unwrap();
    for words in [
        &["build", "-q", "image", "tar"][..],
        &["tar", "-tf", "tar"],
        &["build", "-q", "image", "list:list"],
    ] {
        let status = if words[0] == "tar" { 2 } else { 1 };
        let said = place.fails(status, words);
        assert!(said.contains("bytes; 16384 are possible"), "{said}");
        assert!(said.lines().count() == 1 && said.len() < 500, "{said}");
    }
    archive_of(&place.path("tar"), "x", &[("linkpath", &path)]);
    let said = place.fails(2, &["tar", "-tf", "tar"]);
    let wanted = "tar: x: a path of 200000 bytes; 16384 are possible\n";
    assert!(said.ends_with(wanted), "{said}");
    // Of an image, too.
    let image = place.image("deep", "ext4", 64);
    let script = "mkdir deep\ncd deep\n".repeat(3500);
    fs::write(place.path("script"), script).unwrap();
    let mut debugfs = Command::new("debugfs");
    debugfs.arg("-wf").arg(place.path("script")).arg(&image);
    assert!(debugfs.output().unwrap().status.success());
    for words in [
        &["build", "-q", "image", "deep"][..],
        &["tar", "-cf", "tar", "deep"],
    ] {
        let status = if words[0] == "tar" { 2 } else { 1 };
        let said = place.fails(status, words);
        assert!(said.contains("bytes; 16384 are possible"), "{said}");
        assert!(said.lines().count() == 1 && said.len() < 500, "{said}");
    }
}

/// A program would see a part of such a name.
#[test]
fn zero_bytes_in_attributes_and_links_are_refused() {
    let place = Place::new();
    let archive = place.path("tar");
    let records = [
        ("SCHILY.xattr.user.a\0b", "1"),
        ("LIBARCHIVE.xattr.user.c%00d", "MQ"),
        ("SCHILY.xattr.user.good", "1"),
    ];
    archive_of(&archive, "file", &records);
    let said = place.fails(1, &["build", "-q", "image", "tar"]);
    let line = |name: &str| {
        format!("finefs: left out: /file: attribute {name}: its name has a zero byte in it\n")
    };
    assert_eq!(said, line("user.a\\u{0}b") + &line("user.c\\u{0}d"));
    assert_clean(&place.path("image"));
    let shown = place.ok(&["getfattr", "-dm", "-", "image:/file"]);
    assert_eq!(shown, "# file: image:/file\nuser.good=\"1\"\n\n");
    for kind in [EntryType::Symlink, EntryType::Link] {
        let mut builder = tar::Builder::new(File::create(&archive).unwrap());
        let record = [("linkpath", &b"file\0rest"[..])];
        builder.append_pax_extensions(record).unwrap();
        let mut link = Header::new_ustar();
        link.set_entry_type(kind);
        link.set_size(0);
        builder.append_link(&mut link, "link", "file").unwrap();
        builder.finish().unwrap();
        for words in [
            &["build", "-qF", "image", "tar"][..],
            &["tar", "-tf", "tar"],
        ] {
            let said = place.fails(if words[0] == "tar" { 2 } else { 1 }, words);
            let wanted = "tar: link: a link to a name with a zero byte in it\n";
            assert!(said.ends_with(wanted), "{said}");
        }
    }
}

/// Neither one file nor what all files get; and a list of holes has numbers in it.
#[test]
fn headers_that_nothing_needs_are_refused() {
    let place = Place::new();
    let archive = place.path("tar");
    let refused = |wanted: &str| {
        let said = place.fails(1, &["build", "-q", "image", "tar"]);
        assert!(
            said.starts_with(wanted) && said.lines().count() == 1,
            "{said}"
        );
    };
    let keys = (0..300).map(|number| format!("SCHILY.xattr.user.{number:0>240}"));
    let keys: Vec<String> = keys.collect();
    let records: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "")).collect();
    archive_of(&archive, "file", &records);
    refused("finefs: tar: file: more attributes than a file can have: ");
    // The same type of header but for one letter.
    archive_of(
        &archive,
        "file",
        &[("SCHILY.xattr.user.a", &"v".repeat(5000))],
    );
    let mut bytes = fs::read(&archive).unwrap();
    let mut header = Header::new_old();
    header.as_mut_bytes().copy_from_slice(&bytes[..512]);
    header.set_entry_type(EntryType::XGlobalHeader);
    header.set_cksum();
    bytes[..512].copy_from_slice(header.as_bytes());
    fs::write(&archive, bytes).unwrap();
    refused("finefs: tar: file: a global header has 5007 bytes of attributes; 4096 are possible");
    let mut builder = tar::Builder::new(File::create(&archive).unwrap());
    let records = [
        ("GNU.sparse.major", &b"1"[..]),
        ("GNU.sparse.realsize", b"7"),
    ];
    builder.append_pax_extensions(records).unwrap();
    let mut map = format!("{}1\n0\n0\n", "0".repeat(20)).into_bytes();
    map.resize(512, 0);
    let mut header = Header::new_ustar();
    header.set_size(512);
    builder.append_data(&mut header, "file", &map[..]).unwrap();
    builder.finish().unwrap();
    refused("finefs: tar: file: its list of data and holes is damaged");
}
