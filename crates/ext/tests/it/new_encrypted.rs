//! Files that come to be on an image that is opened with a key, before any commit.

use std::process::Command;

use crate::image::{assert_clean, run};
use crate::keyed::{KEY, find, open_image};
use finefs_block::Access;
use finefs_namespace::{Caller, FileFlags, Ino};

/// What is known of a file that is not on the image yet cannot be looked up there: however many
/// there are, and whatever lies in the inodes that they get.
#[test]
fn many_files_that_are_not_on_the_image_yet() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    run(Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-N", "20000"])
        .args(["-O", "encrypt", "-E", "lazy_itable_init=1"])
        .arg(&image)
        .arg("1G"));
    let namespace = open_image(&image, Access::ReadWrite, &[&KEY]);
    let (caller, root) = (Caller::root(), namespace.root());
    let create = |dir, name: &str| {
        let made = namespace.create_file(&caller, dir, name.as_bytes(), 0o644);
        let ino = made.unwrap_or_else(|error| panic!("{name}: {error:?}")).ino;
        namespace.forget(ino, 1);
        ino
    };
    let directory_at = |name: &str| {
        let made = namespace.make_directory(&caller, root, name.as_bytes(), 0o755);
        let ino = made.unwrap().ino;
        namespace.forget(ino, 1);
        ino
    };
    // Inodes that say that they are encrypted, and are free again.
    let secret = directory_at("secret");
    let flagged = namespace.set_flags(&caller, secret, |was| was | FileFlags::ENCRYPTED);
    flagged.unwrap();
    let names: Vec<String> = (0..400).map(|number| format!("{number}")).collect();
    let before: Vec<Ino> = names.iter().map(|name| create(secret, name)).collect();
    for ino in &before {
        namespace.write(*ino, 0, b"hidden").unwrap();
    }
    namespace.sync().unwrap();
    for name in &names {
        let removed = namespace.remove_file(&caller, secret, name.as_bytes());
        removed.unwrap();
    }
    namespace.sync().unwrap();

    // Of a new encrypted file nobody but the key ring knows how.
    let hidden = create(secret, "hidden");
    let plain = directory_at("plain");
    let files: Vec<Ino> = (0..19_000)
        .map(|number| create(plain, &number.to_string()))
        .collect();
    let reused = files.iter().position(|ino| before.contains(ino)).unwrap();
    for at in [0, reused, files.len() - 1] {
        let written = namespace.write(files[at], 0, b"everybody can read this");
        assert_eq!(written, Ok(23), "{at}");
    }
    namespace.write(hidden, 0, b"nobody can").unwrap();
    namespace.shut_down().unwrap();
    drop(namespace);
    assert_clean(&image);
    let shown = |path: &str| {
        let request = format!("cat {path}");
        run(Command::new("debugfs").args(["-R", &request]).arg(&image))
    };
    for at in [0, reused, files.len() - 1] {
        let text = shown(&format!("plain/{at}"));
        assert_eq!(text, "everybody can read this", "{at}");
    }
    let namespace = open_image(&image, Access::ReadOnly, &[&KEY]);
    let mut read = [0; 20];
    assert_eq!(
        namespace.read(find(&namespace, b"secret/hidden"), 0, &mut read),
        Ok(10)
    );
    assert_eq!(&read[..10], b"nobody can");
}
