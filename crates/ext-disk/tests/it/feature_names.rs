//! Feature names must be dumpe2fs's, bit by bit.

use crate::support::{Image, run};
use finefs_ext_disk::features::{Compat, FeatureWord, Incompat, RoCompat};
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, Superblock};

fn named<W: FeatureWord>(image: &Image, put: impl Fn(&mut Superblock, W)) -> usize {
    let mut agreed = 0;
    for bit in 0..32 {
        let mut sb = image.sb.clone();
        let flag = W::from_bits_retain(1 << bit);
        put(&mut sb, flag);
        sb.update_checksum();
        let mut bytes = image.bytes.clone();
        let at = SUPERBLOCK_OFFSET as usize;
        bytes[at..at + 1024].copy_from_slice(sb.as_bytes());
        let path = image.dir.path().join("odd");
        std::fs::write(&path, &bytes).expect("write");
        let out = run("dumpe2fs", &["-f", "-h", &path.to_string_lossy()]);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        // Some bits make a file system that dumpe2fs cannot open at all.
        let Some(line) = text
            .lines()
            .find_map(|l| l.strip_prefix("Filesystem features:"))
        else {
            continue;
        };
        let theirs: Vec<&str> = line.split_whitespace().collect();
        let ours = flag.feature_names();
        assert!(
            theirs.contains(&ours[0].as_str()),
            "bit {bit} of {}: {ours:?} in {line}",
            W::LETTER
        );
        agreed += 1;
    }
    agreed
}

#[test]
fn equal_dumpe2fs() {
    let image = Image::make(
        &["-t", "ext4", "-O", "^metadata_csum", "-b", "1024"],
        "2M",
        0,
    );
    let agreed = named::<Compat>(&image, |sb, f| sb.set_compat(sb.compat() | f))
        + named::<Incompat>(&image, |sb, f| sb.set_incompat(sb.incompat() | f))
        + named::<RoCompat>(&image, |sb, f| sb.set_ro_compat(sb.ro_compat() | f));
    println!("{agreed} of 96 bits");
    assert!(agreed >= 90, "{agreed}");
}
