//! What mke2fs.conf(5) says: the values of Debian's and of upstream's file, which agree here.

use super::error::Result;
use super::options::Options;

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;
/// A page of most machines. Their kernels mount no larger blocks, but for recent ones.
const PAGE_BYTES: u32 = 4096;

/// Block sizes, inode sizes and space for each inode that a use asks for; `None` for no opinion.
struct Usage {
    name: &'static str,
    block_size: Option<u32>,
    inode_size: Option<u32>,
    bytes_per_inode: Option<u32>,
}

const fn usage(name: &'static str, block_size: Option<u32>, bytes_per_inode: Option<u32>) -> Usage {
    Usage {
        name,
        block_size,
        inode_size: None,
        bytes_per_inode,
    }
}

const USAGES: &[Usage] = &[
    usage("floppy", Some(1024), Some(8192)),
    usage("small", Some(1024), Some(4096)),
    usage("default", None, None),
    // Types, which change features only.
    usage("ext2", None, None),
    usage("ext3", None, None),
    usage("ext4", None, None),
    usage("big", None, Some(32_768)),
    usage("huge", None, Some(65_536)),
    usage("news", None, Some(4096)),
    usage("largefile", Some(4096), Some(1 << 20)),
    usage("largefile4", Some(4096), Some(4 << 20)),
    Usage {
        name: "hurd",
        block_size: Some(4096),
        inode_size: Some(128),
        bytes_per_inode: None,
    },
];

/// The sizes that type and size lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Profile {
    pub block_size: u32,
    pub inode_size: u32,
    pub bytes_per_inode: u32,
    /// What is to be told.
    pub warnings: Vec<String>,
}

impl Profile {
    /// Of a file system of so many bytes.
    pub fn of(options: &Options, size_bytes: u64) -> Result<Profile> {
        let mut profile = Profile {
            block_size: 4096,
            inode_size: 256,
            bytes_per_inode: 16_384,
            warnings: Vec::new(),
        };
        let by_size = [usage_by_size(size_bytes).to_owned()];
        let names: &[String] = match options.usage_types.is_empty() {
            true => &by_size,
            false => &options.usage_types,
        };
        for name in names {
            let Some(usage) = USAGES.iter().find(|usage| usage.name == name) else {
                let line = format!("usage type {name} is not known and changes nothing");
                profile.warnings.push(line);
                continue;
            };
            profile.block_size = usage.block_size.unwrap_or(profile.block_size);
            profile.inode_size = usage.inode_size.unwrap_or(profile.inode_size);
            profile.bytes_per_inode = usage.bytes_per_inode.unwrap_or(profile.bytes_per_inode);
        }
        let least = options.block_size_min.unwrap_or(0);
        profile.block_size = options.block_size.unwrap_or(profile.block_size.max(least));
        profile.inode_size = options.inode_size.unwrap_or(profile.inode_size);
        if options.revision == 0 {
            profile.inode_size = 128;
        }
        if profile.block_size > PAGE_BYTES {
            let line = format!(
                "blocks of {} bytes: few kernels mount them; most have pages of {PAGE_BYTES}",
                profile.block_size
            );
            profile.warnings.push(line);
        }
        // Fewer bytes than a block for each inode would be inodes without a block to use.
        profile.bytes_per_inode = options
            .bytes_per_inode
            .unwrap_or(profile.bytes_per_inode)
            .max(profile.block_size);
        Ok(profile)
    }

    /// An inode has at least a cluster to use.
    pub fn widen(&mut self, cluster_blocks: u32) {
        let cluster_bytes = self.block_size * cluster_blocks;
        self.bytes_per_inode = self.bytes_per_inode.max(cluster_bytes);
    }
}

/// The use that a size suggests.
fn usage_by_size(bytes: u64) -> &'static str {
    match bytes {
        _ if bytes < 3 * MIB => "floppy",
        _ if bytes < 512 * MIB => "small",
        _ if bytes < 4 * TIB => "default",
        _ if bytes < 16 * TIB => "big",
        _ => "huge",
    }
}
