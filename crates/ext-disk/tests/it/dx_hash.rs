//! The directory hash must be debugfs's.

use crate::support::run_ok;
use finefs_ext_disk::dirhash::DirHasher;

const SEED: &str = "01020304-0506-0708-090a-0b0c0d0e0f10";

fn names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [1, 3, 4, 5, 15, 16, 17, 31, 32, 33, 64, 100, 255]
        .iter()
        .map(|len| (0..*len).map(|i| b'a' + (i * 7 % 26) as u8).collect())
        .collect();
    names.extend(
        ["n\u{e4}me", "\u{fc}", "\u{65e5}\u{672c}\u{8a9e}.txt"].map(|n| n.as_bytes().to_vec()),
    );
    names.push((0x80..=0xff).filter(|b| *b != 0xa0 && *b != 0x85).collect());
    names
}

#[test]
fn equals_debugfs() {
    use std::os::unix::ffi::OsStrExt;
    let seed_bytes: Vec<u8> = (1..=16).collect();
    let seed =
        std::array::from_fn(|i| u32::from_le_bytes(std::array::from_fn(|j| seed_bytes[4 * i + j])));
    let mut differ = 0;
    for (version, algorithm) in [
        (0, "legacy"),
        (1, "half_md4"),
        (2, "tea"),
        (3, "HASHALG_3"),
        (4, "HASHALG_4"),
        (5, "HASHALG_5"),
    ] {
        for (with_seed, seed) in [(true, seed), (false, [0; 4])] {
            let hasher = DirHasher::from_parts(version, false, seed).expect("known");
            let twin = DirHasher::from_parts(version % 3, true, seed).expect("known");
            for name in names() {
                let script = tempfile::NamedTempFile::new().expect("script");
                let mut line = format!("dx_hash -h {algorithm} ").into_bytes();
                if with_seed {
                    line.extend(format!("-s {SEED} ").as_bytes());
                }
                line.extend(&name);
                line.push(b'\n');
                std::fs::write(script.path(), &line).expect("script");
                let path = script.path().as_os_str().as_bytes();
                let path = std::str::from_utf8(path).expect("utf-8");
                let text = run_ok("debugfs", &["-f", path], &[0]);
                let ours = hasher.hash(&name);
                let expected = format!("is 0x{:x} (minor 0x{:x})", ours.major, ours.minor);
                assert!(
                    text.contains(&expected),
                    "{algorithm}: {expected} for {name:?}: {text}"
                );
                if version >= 3 {
                    assert_eq!(hasher.hash(&name), twin.hash(&name));
                } else if hasher.hash(&name) != twin.hash(&name) {
                    differ += 1;
                }
            }
        }
    }
    assert!(
        differ > 10,
        "signedness must matter for names with high bits"
    );
}
