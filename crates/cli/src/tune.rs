//! `finefs tune`

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::{ArgGroup, Args, ValueEnum};
use finefs_block::Access;
use finefs_check::tune::{Changes, tune};
use finefs_image::mkfs::parse_uuid;

use crate::check::open;
use crate::{CliResult, Failure, accounts, logger, size};

const DAY_SECONDS: u32 = 24 * 60 * 60;

/// Change what may be changed on an image that is there: label, UUID, reserved blocks, features
///
/// The switches are those of tune2fs(8).
#[derive(Args)]
#[command(args_override_self = true)]
#[command(group = ArgGroup::new("changes").multiple(true).required(true).args([
    "label", "uuid", "reserved_percent", "reserved_blocks", "reserved_uid", "reserved_gid",
    "max_mount_count", "check_interval", "errors", "features",
]))]
pub(crate) struct Tune {
    /// The image, a file or block device; IMAGE@p2 is a partition of it
    #[arg(value_name = "IMAGE")]
    image: OsString,
    /// The label, at most 16 bytes
    #[arg(short = 'L', long, value_name = "LABEL")]
    label: Option<OsString>,
    /// The UUID: one, random, or clear
    #[arg(short = 'U', long, value_name = "UUID")]
    uuid: Option<String>,
    /// Percent of the blocks kept for root
    #[arg(
        short = 'm',
        long,
        value_name = "PERCENT",
        value_parser = percent,
        allow_negative_numbers = true,
        conflicts_with = "reserved_blocks"
    )]
    reserved_percent: Option<f64>,
    /// Blocks kept for root
    #[arg(short = 'r', long, value_name = "BLOCKS")]
    reserved_blocks: Option<u64>,
    /// Who may use them besides, by name or number
    #[arg(short = 'u', long, value_name = "USER", value_parser = user)]
    reserved_uid: Option<u16>,
    /// Which group may use them
    #[arg(short = 'g', long, value_name = "GROUP", value_parser = group)]
    reserved_gid: Option<u16>,
    /// Mounts between checks; -1 for any number
    #[arg(short = 'c', long, value_name = "COUNT", allow_negative_numbers = true)]
    max_mount_count: Option<i16>,
    /// Days between checks, or with w weeks, with m months of 30 days; 0 for no limit
    #[arg(short = 'i', long, value_name = "TIME", value_parser = interval_seconds)]
    check_interval: Option<u32>,
    /// What the kernel does about errors
    #[arg(short = 'e', long, value_name = "WHAT")]
    errors: Option<Errors>,
    /// Features to set, or with ^ to clear: those that nothing on the image hangs on.
    /// metadata_csum_seed, stable_inodes both ways; large_dir, ea_inode, encrypt, casefold, verity,
    /// extent, large_file, huge_file, dir_nlink, ext_attr to set
    #[arg(short = 'O', long, value_name = "FEATURES", value_delimiter = ',')]
    features: Vec<String>,
    /// Where in the image the file system starts: bytes, or with k, m, g
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    offset: Option<u64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Errors {
    Continue,
    RemountRo,
    Panic,
}

impl Tune {
    pub(crate) fn run(self) -> CliResult<()> {
        let changes = Changes {
            label: self
                .label
                .as_deref()
                .map(OsStr::as_bytes)
                .map(<[u8]>::to_vec),
            uuid: self.uuid.as_deref().map(uuid).transpose()?,
            reserved_blocks: self.reserved_blocks,
            reserved_percent: self.reserved_percent,
            reserved_uid: self.reserved_uid,
            reserved_gid: self.reserved_gid,
            max_mount_count: self.max_mount_count,
            check_interval_seconds: self.check_interval,
            errors: self.errors.map(|errors| errors as u16 + 1),
            features: self.features,
        };
        logger::start(false);
        let device = open(&self.image, self.offset, Access::ReadWrite)?;
        tune(&device, &changes).map_err(Failure::new)?;
        Ok(())
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok();
    let percent = percent.filter(|percent| (0.0..=50.0).contains(percent));
    percent.ok_or_else(|| "give percents from 0 to 50".to_owned())
}

fn interval_seconds(text: &str) -> Result<u32, String> {
    let (number, days) = match text.as_bytes().last() {
        Some(b'd') => (&text[..text.len() - 1], 1),
        Some(b'w') => (&text[..text.len() - 1], 7),
        Some(b'm') => (&text[..text.len() - 1], 30),
        _ => (text, 1),
    };
    let seconds = number.parse::<u32>().ok();
    let seconds = seconds.and_then(|number| number.checked_mul(days * DAY_SECONDS));
    seconds.ok_or_else(|| "give days, or a number with d, w or m".to_owned())
}

fn user(text: &str) -> Result<u16, String> {
    id(text, accounts::USERS, "user")
}

fn group(text: &str) -> Result<u16, String> {
    id(text, accounts::GROUPS, "group")
}

fn id(text: &str, table: &str, what: &str) -> Result<u16, String> {
    accounts::number_of(text, table)
        .ok_or_else(|| format!("there is no such {what}; give a number below 65536, or a name"))
}

fn uuid(text: &str) -> CliResult<[u8; 16]> {
    if let Some(uuid) = parse_uuid("-U", text).map_err(Failure::new)? {
        return Ok(uuid);
    }
    let random = std::fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(Failure::new)?;
    let random = parse_uuid("-U", random.trim()).map_err(Failure::new)?;
    random.ok_or_else(|| Failure::new("the kernel gives no random UUID"))
}
