//! mke2fs's words: its names, its lists of options, its sizes.
//!
//! Called as mke2fs, mkfs.ext2, mkfs.ext3 or mkfs.ext4 (through links), finefs takes the arguments
//! of mke2fs(8) and becomes `finefs mkfs --called-as NAME`. What that changes: the file system is
//! ext2 where the name says nothing else, an image that is there is overwritten without a question
//! (on a terminal with one), and usage errors end with status 1.

use std::ffi::OsString;
use std::path::Path;
use std::str::FromStr;

use finefs_image::mkfs::{self, FsType, Options, QuotaKind, parse_uuid};

use crate::{CliResult, Failure, output, size};

/// A name of mke2fs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) name: &'static str,
    /// What it makes without `-t`.
    pub(crate) fs_type: FsType,
}

const NAMES: [Name; 4] = [
    Name {
        name: "mke2fs",
        fs_type: FsType::Ext2,
    },
    Name {
        name: "mkfs.ext2",
        fs_type: FsType::Ext2,
    },
    Name {
        name: "mkfs.ext3",
        fs_type: FsType::Ext3,
    },
    Name {
        name: "mkfs.ext4",
        fs_type: FsType::Ext4,
    },
];

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Name, String> {
        let found = NAMES.iter().find(|known| known.name == text);
        found.copied().ok_or_else(|| "no name of mke2fs".to_owned())
    }
}

/// The name that the program was called by, if it is one of mke2fs's.
pub(crate) fn called_as(arguments: &[OsString]) -> Option<Name> {
    let name = Path::new(arguments.first()?).file_name()?;
    name.to_str()?.parse().ok()
}

/// Ends with a usage error, which shows the name that the program was called by: status 1 where
/// clap would have 2.
pub(crate) fn exit(error: &clap::Error) -> ! {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let name = called_as(&arguments).map_or("mke2fs", |name| name.name);
    let text = error.render().to_string().replace("finefs mkfs", name);
    if error.use_stderr() {
        output::print_beside(&text);
        std::process::exit(1);
    }
    let printed = output::print(&text);
    std::process::exit(i32::from(printed.is_err()))
}

/// `-V`: says what this is, where mke2fs does, and ends.
pub(crate) fn tell_version(name: Name, arguments: &[OsString]) {
    if arguments.iter().skip(1).any(|word| word == "-V") {
        let line = format!("{} of finefs {}\n", name.name, env!("CARGO_PKG_VERSION"));
        crate::output::print_beside(&line);
        std::process::exit(0);
    }
}

/// The arguments as they would have been given to finefs.
pub(crate) fn translate(name: Name, arguments: Vec<OsString>) -> Vec<OsString> {
    let head = ["finefs", "mkfs", "--called-as", name.name].map(OsString::from);
    head.into_iter()
        .chain(arguments.into_iter().skip(1))
        .collect()
}

/// Reads mke2fs's size: in KiB, or in blocks where their size was given, or with s (sectors of 512
/// bytes), k, m, g or t.
pub(crate) fn size_bytes(text: &str, block_size: Option<u32>) -> Result<u64, String> {
    let refuse = || "not a size; give KiB, or a number with k, m, g or t".to_owned();
    let (number, unit) = with_unit(text).ok_or_else(refuse)?;
    let unit = unit.unwrap_or_else(|| u64::from(block_size.unwrap_or(1024)));
    number.checked_mul(unit).ok_or_else(refuse)
}

/// `-i`: bytes, or with k, m or g.
pub(crate) fn bytes_per_inode(text: &str) -> Result<u32, String> {
    let bytes = with_unit(text).and_then(|(number, unit)| number.checked_mul(unit.unwrap_or(1)));
    let bytes = bytes.and_then(|bytes| u32::try_from(bytes).ok());
    bytes.ok_or_else(|| "give bytes, or a number with k or m".to_owned())
}

/// A number and the bytes of its unit, if it has one. As in C, 0x begins a hexadecimal number, and
/// 0 an octal one.
fn with_unit(text: &str) -> Option<(u64, Option<u64>)> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    let end = digits.find(|c: char| !c.is_digit(radix));
    let (digits, unit) = digits.split_at(end.unwrap_or(digits.len()));
    let unit = match unit {
        "" => None,
        "s" => Some(512),
        "k" | "K" => Some(1 << 10),
        "m" | "M" => Some(1 << 20),
        "g" | "G" => Some(1 << 30),
        "t" | "T" => Some(1 << 40),
        _ => return None,
    };
    Some((u64::from_str_radix(digits, radix).ok()?, unit))
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(error)
}

/// A word of a list: NAME or NAME=VALUE.
struct Word<'a> {
    list: &'static str,
    key: &'a str,
    value: Option<&'a str>,
}

impl<'a> Word<'a> {
    fn new(list: &'static str, word: &'a str) -> Word<'a> {
        let (key, value) = match word.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (word, None),
        };
        Word { list, key, value }
    }

    fn refuse<T>(&self, reason: &str) -> CliResult<T> {
        let Word { list, key, .. } = self;
        let value = self
            .value
            .map_or_else(String::new, |value| format!("={value}"));
        Err(Failure::new(format!("{list} {key}{value}: {reason}")))
    }

    fn text(&self) -> CliResult<&'a str> {
        match self.value {
            Some(value) => Ok(value),
            None => self.refuse("needs a value"),
        }
    }

    fn number<T: FromStr>(&self) -> CliResult<T> {
        match self.text()?.parse() {
            Ok(number) => Ok(number),
            Err(_) => self.refuse("not a number, or too large"),
        }
    }

    /// 0 or 1; 1 without a value.
    fn flag(&self) -> CliResult<bool> {
        match self.value {
            None | Some("1") => Ok(true),
            Some("0") => Ok(false),
            Some(_) => self.refuse("give 0 or 1"),
        }
    }
}

/// Where the lists put what is no option of the file system.
#[derive(Debug, Default)]
pub(crate) struct Besides {
    /// `-E offset=`
    pub(crate) offset_bytes: Option<u64>,
}

/// Longest wait between two updates of the block of multiple mount protection, in seconds.
const MMP_INTERVAL_MAX: u16 = 300;

/// `-E resize=`: blocks, or a size with its unit.
fn resize(word: &Word<'_>, options: &mut Options) -> CliResult<()> {
    let size = with_unit(word.text()?);
    let bytes = |(number, unit): (u64, Option<u64>)| number.checked_mul(unit.unwrap_or(1));
    let (Some((_, unit)), Some(number)) = (size, size.and_then(bytes)) else {
        return word.refuse("give a number of blocks, or one with k, m, g or t");
    };
    (options.resize_blocks, options.resize_bytes) = match unit {
        None => (Some(number), None),
        Some(_) => (None, Some(number)),
    };
    Ok(())
}

/// `-E encoding_flags=`
fn is_encoding_strict(word: &Word<'_>) -> CliResult<bool> {
    match word.text()? {
        "strict" => Ok(true),
        "nostrict" => Ok(false),
        _ => word.refuse("there is only strict"),
    }
}

/// Does what one word of `-E` says.
pub(crate) fn extended(word: &str, options: &mut Options, besides: &mut Besides) -> CliResult<()> {
    let word = Word::new("-E", word);
    match word.key.replace('-', "_").as_str() {
        "stride" => options.stride = word.number()?,
        "stripe_width" => options.stripe_width = word.number()?,
        "lazy_itable_init" => options.is_itable_lazy = word.flag()?,
        "lazy_journal_init" => options.is_journal_lazy = word.flag()?,
        "packed_meta_blocks" => options.has_packed_metadata = word.flag()?,
        "assume_storage_prezeroed" => options.is_prezeroed = word.flag()?,
        "discard" => options.discards = true,
        "nodiscard" => options.discards = false,
        "test_fs" => options.is_test = true,
        // There are no files to copy yet.
        "no_copy_xattrs" => {}
        "root_owner" => options.root_owner = root_owner(&word)?,
        "hash_seed" => {
            options.hash_seed = parse_uuid("-E hash_seed", word.text()?).map_err(failed)?;
        }
        "num_backup_sb" => match word.number()? {
            count @ 0..=2 => options.backup_superblocks = count,
            _ => return word.refuse("give 0, 1 or 2"),
        },
        "resize" => resize(&word, options)?,
        "mmp_update_interval" => match word.number()? {
            seconds @ 0..=MMP_INTERVAL_MAX => options.mmp_interval = seconds,
            _ => return word.refuse("more than 300 seconds"),
        },
        "root_perms" => match u16::from_str_radix(word.text()?, 8) {
            Ok(permissions @ 0..=0o7777) => options.root_permissions = permissions,
            _ => return word.refuse("give permission bits in octal"),
        },
        "orphan_file_size" => match size::bytes(word.text()?) {
            Ok(bytes) => options.orphan_file_bytes = Some(bytes),
            Err(reason) => return word.refuse(&reason),
        },
        "offset" => match size::bytes(word.text()?) {
            Ok(bytes) => besides.offset_bytes = Some(bytes),
            Err(reason) => return word.refuse(&reason),
        },
        "encoding" if matches!(word.value, Some("utf8" | "utf8-12.1")) => {
            options.features.push("casefold".to_owned());
        }
        "revision" => options.revision = word.number()?,
        "quotatype" => options.quota_kinds = Some(quota_kinds(&word)?),
        "encoding" => return word.refuse("only utf8 can be had"),
        "encoding_flags" => options.is_encoding_strict = is_encoding_strict(&word)?,
        "desc_size" => options.desc_size = Some(word.number()?),
        "android_sparse" => {
            return word.refuse("cannot be done here; leave it out, or use mke2fs");
        }
        _ => {
            return word.refuse(
                "not known; there are stride, stripe_width, lazy_itable_init, lazy_journal_init, \
                 root_owner, root_perms, num_backup_sb, packed_meta_blocks, resize, discard, \
                 nodiscard, hash_seed, offset, mmp_update_interval, orphan_file_size, \
                 assume_storage_prezeroed, encoding, encoding_flags, desc_size, revision, \
                 quotatype, test_fs, no_copy_xattrs",
            );
        }
    }
    Ok(())
}

/// Whose quota files, with colons between them.
fn quota_kinds(word: &Word<'_>) -> CliResult<Vec<QuotaKind>> {
    let kinds = word.text()?.split(':').map(|name| match name {
        "usr" | "usrquota" => Some(QuotaKind::User),
        "grp" | "grpquota" => Some(QuotaKind::Group),
        "prj" | "prjquota" => Some(QuotaKind::Project),
        _ => None,
    });
    match kinds.collect() {
        Some(kinds) => Ok(kinds),
        None => word.refuse("give some of usr, grp and prj, with colons between them"),
    }
}

/// The blocks that a file of badblocks(8) lists, one a line. As in mke2fs, a line is read as far as
/// it is a number, and one without a number is passed over; that is told.
pub(crate) fn bad_blocks(path: &Path) -> CliResult<Vec<u64>> {
    let shown = path.display();
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| Failure::new(format!("-l {shown}: {error}")))?;
    let mut blocks = Vec::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        let end = line.find(|c: char| !c.is_ascii_digit());
        match line[..end.unwrap_or(line.len())].parse() {
            Ok(block) => blocks.push(block),
            Err(_) if line.is_empty() => {}
            Err(_) => {
                let reason = "no number of a block; the line is passed over";
                output::say(format!("-l {shown}: line {number}: {reason}"));
            }
        }
    }
    Ok(blocks)
}

/// UID:GID; those of the caller without a value.
fn root_owner(word: &Word<'_>) -> CliResult<(u32, u32)> {
    let Some(value) = word.value else {
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        return Ok((uid.as_raw(), gid.as_raw()));
    };
    let numbers = value.split_once(':').and_then(|(uid, gid)| {
        let uid = uid.parse().ok()?;
        Some((uid, gid.parse().ok()?))
    });
    match numbers {
        Some(owner) => Ok(owner),
        None => word.refuse("give UID:GID in numbers"),
    }
}

/// Does what one word of `-J` says.
pub(crate) fn journal(word: &str, options: &mut Options) -> CliResult<()> {
    let word = Word::new("-J", word);
    match word.key {
        "size" => options.journal_mib = Some(word.number()?),
        "fast_commit_size" => options.fast_commit_kib = Some(word.number()?),
        "device" => match word.value {
            Some(path) if !path.is_empty() => options.journal_device = Some(path.into()),
            _ => return word.refuse("give the device or file that the journal lies on"),
        },
        "location" => return word.refuse("the journal's place cannot be chosen; leave it out"),
        _ => return word.refuse("not known; there are size, fast_commit_size and device"),
    }
    options.has_journal = true;
    Ok(())
}

/// `-b`: bytes of a block, or, negative, at least so many.
pub(crate) fn block_size(text: &str, options: &mut Options) -> CliResult<()> {
    let refuse = || Failure::new(format!("-b {text}: not a size; give bytes"));
    let (digits, is_least) = match text.strip_prefix('-') {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    let bytes = size::bytes(digits).map_err(|_| refuse())?;
    let bytes = u32::try_from(bytes).map_err(|_| refuse())?;
    match is_least {
        true => options.block_size_min = Some(bytes),
        false => options.block_size = Some(bytes),
    }
    Ok(())
}

/// `-C`: bytes of a cluster.
pub(crate) fn cluster_size(text: &str) -> CliResult<u32> {
    let bytes = size::bytes(text).ok();
    bytes
        .and_then(|bytes| u32::try_from(bytes).ok())
        .ok_or_else(|| Failure::new(format!("-C {text}: not a size; give bytes")))
}

/// What was made, as mke2fs tells it.
pub(crate) fn report(made: &mkfs::Made, is_verbose: bool) -> String {
    let mut text = String::new();
    if is_verbose {
        text += &format!(
            "Filesystem label={}\nBlock size={}\nInode size={}\n{} block groups\n\
             {} blocks reserved for the super user\nJournal of {} blocks\nFeatures: {}\n",
            made.label,
            made.block_size,
            made.inode_size,
            made.groups,
            made.reserved_blocks,
            made.journal_blocks,
            made.features.join(" "),
        );
    }
    text += &format!(
        "Creating filesystem with {} {}k blocks and {} inodes\nFilesystem UUID: {}\n",
        made.blocks,
        made.block_size / 1024,
        made.inodes,
        made.uuid
    );
    if !made.backup_superblocks.is_empty() {
        text += "Superblock backups stored on blocks: ";
        let numbers: Vec<String> = made
            .backup_superblocks
            .iter()
            .map(ToString::to_string)
            .collect();
        for line in numbers.chunks(8) {
            text += &format!("\n\t{}", line.join(", "));
        }
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> CliResult<Options> {
        let mut options = Options::default();
        for word in words.split(',') {
            extended(word, &mut options, &mut Besides::default())?;
        }
        Ok(options)
    }

    #[test]
    fn names_are_known() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let arguments = words("/usr/sbin/mkfs.ext3 -q a.img 5M");
        let name = called_as(&arguments).unwrap();
        assert_eq!(name.fs_type, FsType::Ext3);
        assert_eq!(
            translate(name, arguments),
            words("finefs mkfs --called-as mkfs.ext3 -q a.img 5M")
        );
        assert_eq!(called_as(&words("finefs mkfs")), None);
        assert_eq!(called_as(&words("mkfs.xfs")), None);
    }

    #[test]
    fn sizes_are_in_kib_or_blocks() {
        assert_eq!(size_bytes("10", None), Ok(10 << 10));
        assert_eq!(size_bytes("10", Some(4096)), Ok(40 << 10));
        assert_eq!(size_bytes("3s", None), Ok(1536));
        assert_eq!(size_bytes("3G", Some(4096)), Ok(3 << 30));
        assert_eq!(size_bytes("0x10000", None), Ok(64 << 20));
        assert_eq!(size_bytes("010k", None), Ok(8 << 10));
        for bad in ["", "x", "3X", "3S", "0x", "08", "1.5g", "99999999999t"] {
            assert!(size_bytes(bad, None).is_err(), "{bad}");
        }
        assert_eq!(bytes_per_inode("4k"), Ok(4096));
        assert!(bytes_per_inode("4g").is_err());
    }

    #[test]
    fn extended_options_have_their_effect() {
        let options = parsed("stride=4,stripe-width=8,root_owner=1:2,nodiscard").unwrap();
        assert_eq!((options.stride, options.stripe_width), (4, 8));
        assert_eq!(options.root_owner, (1, 2));
        assert!(!options.discards);
        let options = parsed("quotatype=usr:prjquota").unwrap();
        let kinds = vec![QuotaKind::User, QuotaKind::Project];
        assert_eq!(options.quota_kinds, Some(kinds));
        let options = parsed("resize=0x100,encoding=utf8,encoding_flags=strict").unwrap();
        assert_eq!(
            (options.resize_blocks, options.resize_bytes),
            (Some(256), None)
        );
        assert!(options.is_encoding_strict);
        let options = parsed("resize=5,resize=1g,desc_size=64").unwrap();
        assert_eq!(
            (options.resize_blocks, options.resize_bytes),
            (None, Some(1 << 30))
        );
        assert_eq!(options.desc_size, Some(64));
        let options = parsed("lazy_itable_init=0,packed_meta_blocks,no_copy_xattrs").unwrap();
        assert!(!options.is_itable_lazy && options.has_packed_metadata);
        for bad in [
            "nonsense",
            "stride",
            "stride=x",
            "stride=70000",
            "resize=1.5g",
            "resize=17179869184g",
            "encoding=latin1",
            "encoding_flags=loose",
            "discard_not",
            "num_backup_sb=3",
            "root_owner=me",
            "lazy_itable_init=2",
            "quotatype=users",
            "quotatype",
        ] {
            let Failure(line) = parsed(bad).unwrap_err();
            assert!(line.starts_with("-E "), "{line}");
        }
    }

    #[test]
    fn journal_and_block_sizes() {
        let mut options = Options::default();
        journal("size=16", &mut options).unwrap();
        assert_eq!(options.journal_mib, Some(16));
        journal("device=/dev/x", &mut options).unwrap();
        assert_eq!(options.journal_device, Some("/dev/x".into()));
        assert!(journal("device=", &mut options).is_err());
        block_size("-2048", &mut options).unwrap();
        block_size("4k", &mut options).unwrap();
        assert_eq!(options.block_size_min, Some(2048));
        assert_eq!(options.block_size, Some(4096));
        assert!(block_size("x", &mut options).is_err());
    }
}
