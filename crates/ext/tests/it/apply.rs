//! Batches applied to images that mke2fs made: e2fsck finds them clean, and a new mount shows what
//! the model says.

use crate::apply_world::{self, driver::Driver};
use crate::apply_world::{World, make_image, open, sized};
use finefs_namespace::Error;

fn random_operations(arguments: &str, seed: u64) {
    let directory = tempfile::tempdir().unwrap();
    let path = make_image(directory.path(), arguments, "64M");
    let mut driver = Driver::new(World::new(open(&path)), seed);
    driver.world.has_value_inodes = arguments.contains("ea_inode");
    for round in 0..sized(2, 8) {
        for _ in 0..6 {
            for step in 0..250 {
                match driver.step() {
                    // What is freed comes back at the next commit.
                    Ok(()) | Err(Error::NoSpace) => {}
                    Err(error) => panic!("{arguments}, seed {seed}, step {step}: {error}"),
                }
            }
            if let Err(error) = driver.world.commit() {
                panic!("{arguments}, seed {seed}, round {round}: {error}");
            }
        }
        driver.world = driver.world.check(&path);
        driver.world.has_value_inodes = arguments.contains("ea_inode");
    }
}

macro_rules! random_operations_on {
    ($($name:ident: $arguments:literal;)*) => { $(
        #[test]
        fn $name() {
            random_operations($arguments, 1);
        }
    )* };
}

random_operations_on! {
    ext2_1k: "-t ext2 -b 1024";
    ext2_4k: "-t ext2 -b 4096";
    ext3_1k: "-t ext3 -b 1024 -J size=4";
    ext3_2k: "-t ext3 -b 2048 -J size=4";
    ext4_1k: "-t ext4 -b 1024";
    ext4_2k: "-t ext4 -b 2048";
    ext4_4k: "-t ext4 -b 4096";
    ext4_no_journal: "-t ext4 -b 4096 -O ^has_journal";
    ext4_no_checksums: "-t ext4 -b 1024 -O ^metadata_csum";
    ext4_uninit_groups: "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg";
    ext4_32bit: "-t ext4 -b 1024 -O ^64bit";
    ext4_small_inodes: "-t ext4 -b 1024 -I 128";
    ext4_large_inodes: "-t ext4 -b 1024 -I 1024";
    ext4_upstream: "-t ext4 -b 4096 -O metadata_csum_seed,orphan_file";
    ext4_orphan_file_1k: "-t ext4 -b 1024 -O orphan_file";
    ext4_linear: "-t ext4 -b 1024 -O ^dir_index";
    ext4_no_filetype: "-t ext4 -b 1024 -O ^filetype";
    ext4_no_flex: "-t ext4 -b 1024 -O ^flex_bg";
    ext4_meta_bg: "-t ext4 -b 1024 -O ^resize_inode,meta_bg";
    ext4_sparse_super2: "-t ext4 -b 1024 -O ^resize_inode,sparse_super2";
    ext4_inline_data: "-t ext4 -b 4096 -O inline_data";
    ext4_inline_data_1k: "-t ext4 -b 1024 -I 512 -O inline_data,^metadata_csum";
    ext4_inline_data_block_maps: "-t ext4 -b 1024 -O inline_data,^extent,^64bit";
    ext4_ea_inode: "-t ext4 -b 1024 -O ea_inode";
    ext4_inline_data_ea_inode: "-t ext4 -b 4096 -O inline_data,ea_inode,large_dir";
    ext4_block_maps: "-t ext4 -b 1024 -O ^extent,^64bit";
    ext4_quota: "-t ext4 -b 4096 -O quota";
    ext4_quota_1k: "-t ext4 -b 1024 -O quota,project -E quotatype=usrquota:grpquota:prjquota";
    ext4_quota_ea_inode: "-t ext4 -b 1024 -O quota,ea_inode";
    ext4_quota_ea_inode_4k: "-t ext4 -b 4096 -O quota,project,ea_inode,inline_data,orphan_file \
        -E quotatype=usrquota:grpquota:prjquota";
    ext4_64k: "-F -t ext4 -b 65536";
}

/// What was never in use on the device is not believed: here it is garbage.
#[test]
fn garbage_in_what_is_not_initialised() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    std::fs::write(&path, vec![0xa5; 64 << 20]).unwrap();
    let arguments = "-t ext4 -b 1024 -E nodiscard,lazy_itable_init=1,lazy_journal_init=1";
    apply_world::format(&path, arguments, "64M");
    let mut driver = Driver::new(World::new(open(&path)), 7);
    for _ in 0..3 {
        for _ in 0..600 {
            match driver.step() {
                Ok(()) | Err(Error::NoSpace) => {}
                Err(error) => panic!("{error}"),
            }
        }
        driver.world.commit().unwrap();
        driver.world = driver.world.check(&path);
    }
}
