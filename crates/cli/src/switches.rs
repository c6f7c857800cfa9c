//! The switches of mke2fs, which `finefs mkfs` and `finefs build` have in common.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use finefs_image::mkfs::{Defaults, FsType, Options, parse_uuid};

use crate::mke2fs::{self, Besides, Name};
use crate::{CliResult, Failure};

/// The time for reproducible builds, in seconds since 1970; see reproducible-builds.org.
const EPOCH_VARIABLE: &str = "SOURCE_DATE_EPOCH";
/// The same of e2fsprogs, for its tests.
const FAKE_TIME_VARIABLE: &str = "E2FSPROGS_FAKE_TIME";

/// The latest that an inode can hold, in the year 2446.
const TIME_MAX: i64 = 0x3_7fff_ffff;

/// Whose default features.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Whose {
    /// Debian's e2fsprogs 1.47, which older kernels read
    Debian,
    /// e2fsprogs' own: metadata_csum_seed and orphan_file too
    Upstream,
}

impl From<Whose> for Defaults {
    fn from(whose: Whose) -> Defaults {
        match whose {
            Whose::Debian => Defaults::Debian,
            Whose::Upstream => Defaults::Upstream,
        }
    }
}

/// The switches of mke2fs that say what is made.
#[derive(Args)]
#[command(next_help_heading = "As of mke2fs")]
pub(crate) struct Switches {
    /// The type: ext2, ext3 or ext4 [default: ext4]
    #[arg(short = 't', value_name = "TYPE")]
    fs_types: Vec<String>,
    /// What it is for, by names of mke2fs.conf(5): floppy, small, big, huge, news, largefile,
    /// largefile4; by the size without it
    #[arg(short = 'T', value_name = "USES", value_delimiter = ',')]
    usage_types: Vec<String>,
    /// Features to set, or with ^ to clear; none clears all
    #[arg(short = 'O', value_name = "FEATURES", allow_hyphen_values = true)]
    features: Vec<String>,
    /// Further options, as in mke2fs(8); one that is not known says which there are
    #[arg(short = 'E', short_alias = 'R', value_name = "OPTIONS")]
    extended: Vec<String>,
    /// Bytes of a block; negative: at least so many
    #[arg(short = 'b', value_name = "SIZE", allow_hyphen_values = true)]
    block_size: Option<String>,
    /// Bytes of an inode
    #[arg(short = 'I', value_name = "BYTES")]
    inode_size: Option<u32>,
    /// Bytes of space for each inode, or with k or m
    #[arg(short = 'i', value_name = "BYTES", value_parser = mke2fs::bytes_per_inode)]
    bytes_per_inode: Option<u32>,
    /// Number of inodes
    #[arg(short = 'N', value_name = "COUNT", allow_negative_numbers = true)]
    inodes: Option<u32>,
    /// The label
    #[arg(short = 'L', value_name = "LABEL", allow_hyphen_values = true)]
    label: Option<String>,
    /// The UUID; or clear, random, time
    #[arg(short = 'U', value_name = "UUID")]
    uuid: Option<String>,
    /// Percents of the blocks that are reserved; 5, or in images that are built 0
    #[arg(short = 'm', value_name = "PERCENT", allow_negative_numbers = true)]
    reserved_percent: Option<f64>,
    /// A journal, whatever the type
    #[arg(short = 'j')]
    has_journal: bool,
    /// The journal: size=MIB, fast_commit_size=KIB, device=FILE
    #[arg(short = 'J', value_name = "OPTIONS", value_delimiter = ',')]
    journal: Vec<String>,
    /// Blocks of a group
    #[arg(short = 'g', value_name = "BLOCKS")]
    blocks_per_group: Option<u32>,
    /// Groups of a flex group
    #[arg(short = 'G', value_name = "COUNT")]
    groups_per_flex: Option<u32>,
    /// Where it was mounted last
    #[arg(short = 'M', value_name = "DIR")]
    last_mounted: Option<String>,
    /// What to do when an error is found: continue, remount-ro or panic
    #[arg(short = 'e', value_name = "BEHAVIOUR")]
    on_error: Option<String>,
    /// The revision of the format
    #[arg(short = 'r', value_name = "REVISION", default_value_t = 1)]
    revision: u32,
    /// Keep the image's storage instead of giving it back, as -E nodiscard
    #[arg(short = 'K')]
    keep: bool,
    /// Bytes of a cluster, with -O bigalloc; 16 blocks
    #[arg(short = 'C', value_name = "BYTES")]
    cluster_size: Option<String>,
    /// Read everything first, and leave out the blocks that cannot be read; given twice, write all
    /// of it with four patterns, and leave out the blocks that do not keep them
    #[arg(short = 'c', action = ArgAction::Count)]
    checks_blocks: u8,
    /// Leave out the blocks that this file of badblocks(8) lists
    #[arg(short = 'l', value_name = "FILE")]
    bad_blocks: Option<PathBuf>,
    /// The creator's system: linux
    #[arg(short = 'o', value_name = "SYSTEM", hide = true)]
    creator: Option<String>,
    /// Superblock and descriptors only (refused)
    #[arg(short = 'S', hide = true)]
    super_only: bool,
    /// Put what will be overwritten into this undo file first, by which finefs undo, or e2undo(8),
    /// puts it back; gives no storage back
    #[arg(short = 'z', value_name = "FILE")]
    undo: Option<PathBuf>,
    /// Direct I/O: changes nothing
    #[arg(short = 'D', hide = true)]
    direct: bool,
}

impl Switches {
    /// Refuses what is not done, each with what to do instead.
    fn refuse_what_is_not_done(&self) -> CliResult<()> {
        let creator = self.creator.as_deref().unwrap_or("linux");
        let refused = [
            (
                !creator.eq_ignore_ascii_case("linux") && creator != "0",
                "-o: only linux can be had",
            ),
            (
                self.super_only,
                "-S: superblocks alone cannot be written; a backup superblock can be read by \
                 e2fsck -b",
            ),
        ];
        match refused.iter().find(|(is_asked, _)| *is_asked) {
            Some((_, line)) => Err(Failure::new(line)),
            None => Ok(()),
        }
    }

    /// Whether something is said of reserved blocks.
    pub(crate) fn names_reserved_blocks(&self) -> bool {
        self.reserved_percent.is_some()
    }

    /// What they ask for. What is no part of the file system itself comes into `besides`. By one
    /// of mke2fs's names the type is that of the name where none is given, and only the last `-E`
    /// counts, as it does there.
    pub(crate) fn options(
        self,
        called_as: Option<Name>,
        besides: &mut Besides,
    ) -> CliResult<Options> {
        self.refuse_what_is_not_done()?;
        let features = self.features.iter();
        let features = features.flat_map(|list| list.split([',', ' ', '\t']));
        let mut options = Options {
            fs_type: called_as.map_or(FsType::Ext4, |name| name.fs_type),
            usage_types: self.usage_types,
            features: features
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect(),
            has_journal: self.has_journal,
            inode_size: self.inode_size,
            bytes_per_inode: self.bytes_per_inode,
            inodes: self.inodes,
            label: self.label.unwrap_or_default().into_bytes(),
            last_mounted: self.last_mounted.unwrap_or_default().into_bytes(),
            reserved_percent: self.reserved_percent.unwrap_or(5.0),
            blocks_per_group: self.blocks_per_group,
            groups_per_flex: self.groups_per_flex,
            revision: self.revision,
            discards: !self.keep,
            checks_blocks: self.checks_blocks > 0,
            writes_patterns: self.checks_blocks > 1,
            undo: self.undo,
            ..Options::default()
        };
        match &self.fs_types[..] {
            [] => {}
            [name] => options.fs_type = name.parse().map_err(Failure::new)?,
            _ => return Err(Failure::new("-t: give it only once")),
        }
        // mke2fs took the type by -T once, and still does.
        let mut types = options.usage_types.iter().map(|word| word.parse());
        if let Some(fs_type) = types.find_map(Result::ok) {
            options.fs_type = fs_type;
        }
        if let Some(uuid) = self.uuid {
            options.uuid = parse_uuid("-U", &uuid).map_err(Failure::new)?;
        }
        if let Some(path) = &self.bad_blocks {
            options.bad_blocks = mke2fs::bad_blocks(path)?;
        }
        if let Some(word) = self.on_error {
            options.on_error = word.parse().map_err(Failure::new)?;
        }
        if let Some(text) = self.block_size {
            mke2fs::block_size(&text, &mut options)?;
        }
        if let Some(text) = self.cluster_size {
            options.cluster_size = Some(mke2fs::cluster_size(&text)?);
        }
        for word in &self.journal {
            mke2fs::journal(word, &mut options)?;
        }
        let ignored = match called_as {
            Some(_) => self.extended.len().saturating_sub(1),
            None => 0,
        };
        let lists = self.extended[ignored..].iter();
        for word in lists.flat_map(|list| list.split(',')) {
            mke2fs::extended(word, &mut options, besides)?;
        }
        Ok(options)
    }
}

/// The time that the environment asks for; by mke2fs's names also by e2fsprogs' own variable.
pub(crate) fn time_from_environment(as_mke2fs: bool) -> CliResult<Option<i64>> {
    let names = match as_mke2fs {
        true => &[EPOCH_VARIABLE, FAKE_TIME_VARIABLE][..],
        false => &[EPOCH_VARIABLE],
    };
    for name in names {
        if let Ok(text) = std::env::var(name) {
            let time = text
                .parse()
                .ok()
                .filter(|time| (0..=TIME_MAX).contains(time));
            return time.map(Some).ok_or_else(|| {
                Failure::new(format!(
                    "{name}={text}: give seconds since 1970, or unset it"
                ))
            });
        }
    }
    Ok(None)
}
