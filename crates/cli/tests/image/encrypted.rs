//! `--key`: the commands on images that have encrypted directories, judged by the kernel and
//! e2fsck.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{KernelMount, Place, assert_clean, assert_same, is_root, snapshot};

/// A tree of the host with all that can be encrypted, a key, and an image with an encrypted `d`.
fn prepare(place: &Place) -> std::path::PathBuf {
    let host = place.path("host");
    fs::create_dir_all(host.join("sub/deeper")).unwrap();
    fs::write(host.join("small"), b"what nobody shall read").unwrap();
    fs::write(host.join("sub/large"), vec![0x61; 3_000_000]).unwrap();
    fs::write(host.join("n".repeat(255)), b"long").unwrap();
    std::os::unix::fs::symlink("small", host.join("link")).unwrap();
    std::os::unix::fs::symlink("x".repeat(300), host.join("sub/long")).unwrap();
    fs::write(place.path("key"), [7; 64]).unwrap();
    fs::write(place.path("other"), [8; 32]).unwrap();
    let image = place.image_with("image", 32, &["-t", "ext4", "-O", "encrypt"]);
    place.ok(&["mkdir", "image:/d"]);
    let said = place.fails(1, &["chattr", "+E", "image:/d"]);
    assert!(said.contains("key"), "{said}");
    place.ok(&["chattr", "+E", "--key", "key", "image:/d"]);
    place.ok(&["cp", "-a", "--key", "key", "host", "image:/d"]);
    assert_clean(&image);
    image
}

#[test]
fn with_the_key_all_is_there() {
    let place = Place::new();
    let image = prepare(&place);
    let keys = ["--key", "other", "--key", "key"];
    let with = |arguments: &[&str]| place.ok(&[arguments, &keys].concat());
    assert_eq!(
        with(&["cat", "image:/d/host/small"]),
        "what nobody shall read"
    );
    assert_eq!(with(&["ls", "image:/d"]), "host\n");
    assert!(with(&["lsattr", "-d", "image:/d"]).contains('E'));
    with(&["diff", "host", "image:/d/host"]);
    with(&["cp", "-a", "image:/d/host", "back"]);
    assert_same(
        &snapshot(&place.path("host")),
        &snapshot(&place.path("back")),
    );
    with(&["build", "-q", "copy", "image"]);
    let copied = place.ok(&["cat", "copy:/d/host/small"]);
    assert_eq!(copied, "what nobody shall read");
    fs::create_dir_all(place.path("more/d/host")).unwrap();
    fs::write(place.path("more/d/host/added"), b"added").unwrap();
    with(&["build", "-q", "--onto", "image:/", "more"]);
    assert_eq!(with(&["cat", "image:/d/host/added"]), "added");
    with(&["mv", "image:/d/host/added", "image:/d/moved"]);
    with(&["rm", "image:/d/moved"]);
    assert_clean(&image);
}

/// The policy of a directory is shown without its key; of what lies below, too, by its name.
#[test]
fn policies_are_shown() {
    let place = Place::new();
    prepare(&place);
    let told = place.ok(&["info", "image", "--policy", "/d"]);
    for part in [
        "AES-256-XTS (1)",
        "AES-256-CTS (4)",
        "padding 32",
        "\nkey         ",
    ] {
        assert!(told.contains(part), "{told}");
    }
    let below = ["info", "image", "--policy", "d/host/small"];
    assert_eq!(place.ok(&[&below[..], &["--key", "key"]].concat()), told);
    let said = place.fails(1, &below);
    assert!(said.contains("d/host/small: no such file"), "{said}");
    let json = place.ok(&["info", "--json", "image", "--policy", "/d"]);
    assert!(json.contains("\"names_mode\": 4"), "{json}");
    let said = place.fails(1, &["info", "image", "--policy", "/"]);
    assert!(said.contains("not encrypted"), "{said}");
}

/// Directories by other ciphers, which is a policy that every command goes by.
#[test]
fn ciphers_can_be_chosen() {
    let place = Place::new();
    fs::write(place.path("key"), [7; 64]).unwrap();
    let image = place.image_with("image", 32, &["-t", "ext4", "-O", "encrypt"]);
    let content = vec![0x61; 100_000];
    fs::write(place.path("file"), &content).unwrap();
    let ciphers = [
        ("aes-256", "AES-256-XTS (1)", "AES-256-CTS (4)"),
        ("aes-256-hctr2", "AES-256-XTS (1)", "AES-256-HCTR2 (10)"),
        ("aes-128", "AES-128-CBC-ESSIV (5)", "AES-128-CTS (6)"),
        ("adiantum", "Adiantum (9)", "Adiantum (9)"),
    ];
    for (cipher, contents, names) in ciphers {
        let dir = format!("image:/{cipher}");
        place.ok(&["mkdir", &dir]);
        let arguments = ["chattr", "+E", "--cipher", cipher, "--key", "key", &dir];
        place.ok(&arguments);
        place.ok(&["cp", "--key", "key", "file", &format!("{dir}/a name")]);
        assert_clean(&image);
        let back = place.ok(&["cat", "--key", "key", &format!("{dir}/a name")]);
        assert!(back.as_bytes() == content);
        let told = place.ok(&["info", "image", "--policy", cipher]);
        let said = format!("contents    {contents}\nnames       {names}\n");
        assert!(told.contains(&said), "{told}");
    }
    // In a shell, whose image is open, too; and only for that command.
    let script = "mkdir s1 s2
        chattr +E --cipher adiantum s1
        chattr +E s2
    ";
    fs::write(place.path("script"), script).unwrap();
    place.ok(&["shell", "--key", "key", "-f", "script", "image"]);
    for (dir, (_, contents, _)) in [("s1", ciphers[3]), ("s2", ciphers[0])] {
        let told = place.ok(&["info", "image", "--policy", dir]);
        assert!(told.contains(contents), "{told}");
    }
    assert_clean(&image);
    let said = place.fails(
        1,
        &["chattr", "+d", "--cipher", "adiantum", "image:/aes-256"],
    );
    assert!(said.contains("goes with +E"), "{said}");
    let again = [
        "chattr",
        "+E",
        "--cipher",
        "adiantum",
        "--key",
        "key",
        "image:/aes-256",
    ];
    let said = place.fails(1, &again);
    assert!(said.contains("keeps its cipher"), "{said}");
    let bytes = fs::read(&image).unwrap();
    assert!(!bytes.windows(4096).any(|some| some == &content[..4096]));
}

#[test]
fn without_the_key_nothing_is_told() {
    let place = Place::new();
    let image = prepare(&place);
    let listed = place.ok(&["ls", "image:/d"]);
    assert_eq!(listed.trim().len(), 54, "{listed}");
    let found = place.ok(&["find", "image:/d", "-type", "f"]);
    let said = place.fails(1, &["cat", found.lines().next().unwrap()]);
    assert!(said.contains("key"), "{said}");
    let output = place.finefs(&["ls", "--key", "other", "image:/d"]).output();
    let output = output.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), listed);
    assert!(said.contains("none of the keys is "), "{said}");
    let bytes = fs::read(&image).unwrap();
    let plain = b"what nobody shall read";
    assert!(!bytes.windows(plain.len()).any(|some| some == plain));
}

#[test]
fn what_is_no_key_is_refused() {
    let place = Place::new();
    place.image("image", "ext4", 16);
    fs::write(place.path("short"), [7; 15]).unwrap();
    let said = place.fails(2, &["ls", "--key", "short", "image:/"]);
    assert!(said.contains("16 to 64 bytes"), "{said}");
    let said = place.fails(2, &["ls", "--key", "none", "image:/"]);
    assert!(said.contains("No such file"), "{said}");
    fs::write(place.path("key"), [7; 64]).unwrap();
    place.ok(&["mkdir", "image:/d"]);
    place.ok(&["touch", "image:/file"]);
    for (what, reason) in [
        ("image:/d", "not supported"),
        ("image:/file", "no directory"),
    ] {
        let said = place.fails(1, &["chattr", "+E", "--key", "key", what]);
        assert!(said.contains(reason), "{said}");
    }
    place.fails(2, &["chattr", "-E", "image:/d"]);
}

fn give_kernel_the_key(dir: &Path) {
    let mut child = Command::new("xfs_io")
        .args(["-c", "add_enckey"])
        .arg(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&[7; 64]).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_kernel_reads_it() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let image = prepare(&place);
    let mount = KernelMount::new(&place, &image, "ro");
    give_kernel_the_key(&mount.dir);
    let copied = snapshot(&mount.dir.join("d/host"));
    assert_same(&snapshot(&place.path("host")), &copied);
}
