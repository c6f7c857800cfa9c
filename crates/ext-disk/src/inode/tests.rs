//! Field rules of inodes: what is stored where, and what does not fit.

use super::*;

const RULES: InodeRules = InodeRules {
    block_bits: 12,
    has_huge_file: true,
    has_large_dir: false,
    has_64bit: true,
    seed: Some(FsSeed(1)),
};

#[test]
fn block_count_units() {
    let mut inode = Inode::blank(256, 32);
    for (count, is_huge) in [
        (0, false),
        (u32::MAX.into(), false),
        (1 << 32, false),
        ((1 << 48) - 1, false),
        (1 << 48, true),
        (((1 << 48) - 1) << 3, true),
    ] {
        assert_eq!(inode.set_blocks_512(&RULES, count), Ok(()));
        assert_eq!(inode.blocks_512(&RULES), count);
        assert_eq!(
            inode.flags().contains(InodeFlags::HUGE_FILE),
            is_huge,
            "{count}"
        );
    }
    assert!(inode.set_blocks_512(&RULES, 1 << 51).is_err());
    let small = InodeRules {
        has_huge_file: false,
        ..RULES
    };
    assert!(inode.set_blocks_512(&small, 1 << 32).is_err());
}

#[test]
fn sizes_by_kind() {
    let mut inode = Inode::blank(256, 32);
    inode.set_mode(0o100644);
    assert_eq!(inode.set_size(&RULES, 1 << 40), Ok(()));
    assert_eq!(inode.size(&RULES), 1 << 40);
    inode.set_mode(0o040755);
    assert_eq!(inode.size(&RULES), 0);
    assert!(inode.set_size(&RULES, 1 << 32).is_err());
    let large = InodeRules {
        has_large_dir: true,
        ..RULES
    };
    assert_eq!(inode.size(&large), 1 << 40);
}

#[test]
fn owners_have_32_bits() {
    let mut inode = Inode::blank(128, 0);
    inode.set_uid(0x1234_5678);
    inode.set_gid(0xfedc_ba98);
    assert_eq!((inode.uid(), inode.gid()), (0x1234_5678, 0xfedc_ba98));
}

#[test]
fn fields_end_where_extra_isize_does() {
    let t = Timestamp {
        sec: 1 << 33,
        nsec: 5,
    };
    // 24 bytes: up to crtime, without its extra word.
    let mut inode = Inode::blank(256, 20);
    inode.set_mtime(t);
    inode.set_crtime(t);
    assert_eq!(inode.mtime(), t);
    assert_eq!(inode.crtime(), Some(Timestamp::MAX_SMALL));
    assert!(!inode.set_project(7) && inode.project().is_none());
    assert!(inode.as_bytes()[128 + 20..].iter().all(|b| *b == 0));
    let mut small = Inode::blank(128, 32);
    small.set_mtime(t);
    small.set_crtime(t);
    assert_eq!(
        (small.mtime(), small.crtime()),
        (Timestamp::MAX_SMALL, None)
    );
    assert_eq!((small.extra_isize(), small.xattr_area()), (0, None));
    let mut whole = Inode::blank(256, 32);
    whole.set_crtime(t);
    whole.set_version(0x5_0000_0001);
    assert!(whole.set_project(7) && whole.project() == Some(7));
    assert_eq!((whole.crtime(), whole.version()), (Some(t), 0x5_0000_0001));
    assert_eq!(whole.xattr_area(), Some(160..256));
}

#[test]
fn checksum_covers_everything() {
    for (size, extra) in [(128, 0), (256, 32), (256, 0), (512, 4)] {
        let mut inode = Inode::blank(size, extra);
        inode.set_mode(0o100600);
        inode.update_checksum(&RULES, Ino(12));
        assert_eq!(inode.verify_checksum(&RULES, Ino(12)), Ok(()));
        assert!(inode.verify_checksum(&RULES, Ino(13)).is_err());
        for i in 0..usize::from(size) {
            // Changing i_extra_isize changes what there is to check.
            if (0x80..0x82).contains(&i) {
                continue;
            }
            let mut bytes = inode.as_bytes().to_vec();
            bytes[i] ^= 1;
            let damaged = Inode::new(bytes).expect("size");
            assert!(
                damaged.verify_checksum(&RULES, Ino(12)).is_err(),
                "byte {i}"
            );
        }
    }
}

#[test]
fn short_links() {
    let mut inode = Inode::blank(256, 32);
    inode.set_mode(0o120777);
    assert_eq!(inode.set_fast_symlink_target(b"target"), Ok(()));
    assert_eq!(inode.set_size(&RULES, 6), Ok(()));
    assert_eq!(inode.fast_symlink_target(&RULES), Some(&b"target"[..]));
    assert!(inode.set_fast_symlink_target(&[b'x'; 60]).is_err());
    assert_eq!(inode.set_size(&RULES, 60), Ok(()));
    assert_eq!(inode.fast_symlink_target(&RULES), None);
}

#[test]
fn validation() {
    let mut inode = Inode::blank(256, 32);
    assert_eq!(inode.validate(), Err(Corrupt::Mode(0).into()));
    inode.set_mode(0o140000);
    assert_eq!(inode.validate(), Ok(FileKind::Socket));
    put_bytes(inode.as_bytes_mut(), 0x80, &[200, 0]);
    assert_eq!(inode.validate(), Err(Corrupt::ExtraIsize(200).into()));
    assert!(inode.set_extra_isize(132).is_err());
    for kind in [
        FileKind::Fifo,
        FileKind::CharDevice,
        FileKind::Directory,
        FileKind::Symlink,
    ] {
        assert_eq!(FileKind::from_mode(kind.mode_bits() | 0o7777), Some(kind));
    }
}
