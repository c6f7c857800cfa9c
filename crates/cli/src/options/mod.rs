//! The options of `-o`: those of mount(8), the kernel's ext4, fuse2fs and mount.fuse3.
//!
//! One table has them all (`table` and `without_effect`, of rows, `row`): what is done, what is
//! ignored and why that does no harm, what is refused and why. What is not in it is an error that
//! names the option: a typing error must not silently mount something different. Of options that
//! contradict each other the last one counts, as with mount(8).

mod page;
mod row;
mod table;
mod values;
mod without_effect;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use finefs::{LockingScheme, OnError, QuotaKind};
use finefs_fuse::View;

use crate::confine::{RunAs, Sandbox};
use crate::size::Size;
use crate::target::disk_of;
use crate::{CliResult, Failure};
use row::{Of, What};

pub use page::{OptionText, OptionsPage, options_page};
pub(crate) use page::{help, page};

/// What the options say.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct MountOptions {
    /// What the kernel is told, but for what is shown as mounted.
    pub kernel: finefs_fuse::Options,
    pub offset_bytes: u64,
    /// At most so much of the image is looked at.
    pub size_limit_bytes: Option<u64>,
    /// The journal is not replayed.
    pub skips_recovery: bool,
    /// The device or image that the journal lies on.
    pub journal: Option<PathBuf>,
    /// Files with keys of encrypted files.
    pub keys: Vec<PathBuf>,
    /// Whose limits are enforced.
    pub quota_limits: Vec<QuotaKind>,
    /// New files have their directory's group.
    pub has_bsd_groups: bool,
    pub commit_interval: Duration,
    pub lacks_barriers: bool,
    /// Give storage below what is removed back.
    pub discards: bool,
    /// Memory for what the image holds; by the machine's where it is not given.
    pub cache: Option<Size>,
    /// Of it, memory for file data.
    pub data_cache: Option<Size>,
    pub on_error: Option<OnError>,
    pub has_acls: bool,
    pub locking: LockingScheme,
    pub is_debug: bool,
    /// Whether the server is confined, and as which user it goes on.
    pub sandbox: Sandbox,
    pub run_as: Option<RunAs>,
    /// A mount whose server is killed is taken away.
    pub is_auto_unmounted: bool,
    /// What shall be shown as mounted; only for memory.
    pub source: Option<String>,
    /// Of a memory file system: its size and its root.
    pub size: Option<Size>,
    pub mode: Option<u32>,
    /// The owner and group of its root, or those that all files of an image are shown with.
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// The permissions that files of an image are shown without.
    pub umask: Option<u32>,
    /// The mount that is there gets other flags.
    pub is_remount: bool,
    /// Those that the server heeds, which a remount does not reach.
    pub of_server: Vec<String>,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        let namespace = finefs::front_end::namespace::Options::default();
        MountOptions {
            kernel: finefs_fuse::Options::default(),
            offset_bytes: 0,
            size_limit_bytes: None,
            skips_recovery: false,
            journal: None,
            keys: Vec::new(),
            quota_limits: Vec::new(),
            has_bsd_groups: namespace.has_bsd_groups,
            commit_interval: namespace.commit_interval,
            lacks_barriers: false,
            discards: false,
            cache: None,
            data_cache: None,
            on_error: None,
            has_acls: namespace.has_acls,
            locking: namespace.locking,
            is_debug: false,
            sandbox: Sandbox::default(),
            run_as: None,
            is_auto_unmounted: false,
            source: None,
            size: None,
            mode: None,
            uid: None,
            gid: None,
            umask: None,
            is_remount: false,
            of_server: Vec::new(),
        }
    }
}

/// An option that has no effect, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Remark {
    word: String,
    reason: &'static str,
}

impl Remark {
    fn new(word: &str, reason: &'static str) -> Remark {
        Remark {
            word: word.to_owned(),
            reason,
        }
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "option {} has no effect: {}", self.word, self.reason)
    }
}

impl MountOptions {
    /// These, changed as the values of all `-o` say; and what has no effect. Sloppily, what is
    /// unknown has none either.
    pub(crate) fn changed_by<S: AsRef<str>>(
        mut self,
        lists: &[S],
        is_sloppy: bool,
    ) -> CliResult<(MountOptions, Vec<Remark>)> {
        let mut remarks = Vec::new();
        for list in lists {
            for word in split(list.as_ref()) {
                self.take(&word, &mut remarks, is_sloppy)?;
            }
        }
        Ok((self, remarks))
    }

    fn take(&mut self, word: &str, remarks: &mut Vec<Remark>, is_sloppy: bool) -> CliResult<()> {
        if word.is_empty() {
            return Ok(());
        }
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let Some(row) = table::find(word) else {
            if is_sloppy {
                remarks.push(Remark::new(word, "unknown, and ignored"));
                return Ok(());
            }
            return Err(unknown(word));
        };
        match &row.what {
            What::Flag(set, _) => set(self, name, value.unwrap_or_default()),
            What::Done(set, _) => {
                set(self, name, value.unwrap_or_default())?;
                self.of_server.push(word.to_owned());
                Ok(())
            }
            What::Ignored(reason) => {
                let is_number = row.value.is_some_and(|value| value.shown == "N");
                if is_number && value.is_some_and(|value| value.parse::<u64>().is_err()) {
                    let value = value.unwrap_or_default();
                    return Err(values::bad(name, value, "a number"));
                }
                remarks.push(Remark::new(word, reason));
                Ok(())
            }
            What::Refused(reason) => Err(Failure::new(format!("option {word}: {reason}"))),
        }
    }

    /// Every change of a directory is on the image when it returns: what is synchronous is so as a
    /// whole.
    pub(crate) fn has_synchronous_directories(&self) -> bool {
        self.kernel.is_synchronous || self.kernel.is_directory_synchronous
    }

    /// What files of an image are shown to be.
    pub(crate) fn view(&self) -> View {
        View {
            uid: self.uid,
            gid: self.gid,
            umask: self.umask,
        }
    }

    /// The disk that `IMAGE` or `IMAGE@PARTITION` names; the file system begins where the partition
    /// does.
    pub(crate) fn begin_at_partition(&mut self, image: &Path) -> CliResult<PathBuf> {
        let (disk, start_bytes) = disk_of(image)?;
        if let Some(bytes) = start_bytes {
            if self.offset_bytes > 0 {
                let image = image.display();
                return Err(Failure::new(format!(
                    "{image}: option offset: the partition says where the file system starts"
                )));
            }
            self.offset_bytes = bytes;
        }
        Ok(disk)
    }

    /// Fails where an option asks for what only a mount has.
    pub(crate) fn check_for_serving(lists: &[String]) -> CliResult<()> {
        for word in lists.iter().flat_map(|list| split(list)) {
            let (one, _) = MountOptions::default().changed_by(&[&word], false)?;
            if one.is_of_mounts() {
                return Err(Failure::new(format!("option {word}: only of a mount")));
            }
        }
        Ok(())
    }

    /// Whether something is not as by default that only a mount has.
    fn is_of_mounts(&self) -> bool {
        // What the namespace heeds as well.
        let heeded = finefs_fuse::Options {
            is_read_only: self.kernel.is_read_only,
            is_synchronous: self.kernel.is_synchronous,
            is_directory_synchronous: self.kernel.is_directory_synchronous,
            atime: self.kernel.atime,
            notes_directories: self.kernel.notes_directories,
            ..finefs_fuse::Options::default()
        };
        self.kernel != heeded || self.is_auto_unmounted || self.is_remount
    }

    /// Fails where an option speaks of something else than what is to be mounted.
    pub(crate) fn check_for(&self, is_memory: bool) -> CliResult<()> {
        for word in &self.of_server {
            let reason = match table::find(word).map(|row| row.of) {
                Some(Of::Memory) if !is_memory => "only for a memory file system (--memory)",
                Some(Of::Image) if is_memory => "only for an image",
                _ => continue,
            };
            return Err(Failure::new(format!("option {word}: {reason}")));
        }
        if let (Some(cache), Some(data)) = (self.cache, self.data_cache)
            && data.bytes() > cache.bytes()
        {
            return Err(Failure::new(
                "option data_cache: it is a part of cache, and cannot be more",
            ));
        }
        Ok(())
    }
}

/// At commas; `\,` is a comma and `\\` a backslash inside a value.
fn split(list: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut characters = list.chars();
    while let Some(character) = characters.next() {
        let escaped = if character == '\\' {
            characters.next()
        } else {
            None
        };
        let Some(word) = words.last_mut() else { break };
        match (character, escaped) {
            (',', _) => words.push(String::new()),
            (_, Some(escaped)) => word.push(escaped),
            (character, None) => word.push(character),
        }
    }
    words
}

fn unknown(word: &str) -> Failure {
    let line = match table::lacking(word) {
        Some(value) => format!("option {word}: a value is missing: {word}={}", value.shown),
        None => format!("unknown mount option {word}; see finefs mount --help-options"),
    };
    Failure::new(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use finefs::AtimePolicy;

    fn parse(list: &str) -> CliResult<MountOptions> {
        let (options, _) = MountOptions::default().changed_by(&[list], false)?;
        Ok(options)
    }

    /// As unlike the default as it can be.
    fn unlike() -> MountOptions {
        let list = "ro,suid,dev,noexec,nosymfollow,sync,dirsync,noatime,nodiratime,grpid,noacl,\
                    nobarrier,noxattr,security_label,writeback_cache,noio_uring,allow_other,\
                    default_permissions,debug,errors=panic,commit=77,discard,threads=9,\
                    locking=big-spin,offset=7k,cpu_latency=7,usrquota,remount";
        parse(list).unwrap()
    }

    /// With a value if it takes one.
    fn words(row: &row::Row) -> Vec<String> {
        let mut words = Vec::new();
        for name in row.names {
            let name = name.replace('*', "something");
            if row.value.is_none_or(|value| value.is_optional) {
                words.push(name.clone());
            }
            if let Some(value) = row.value {
                words.push(format!("{name}={}", value.example));
            }
        }
        words
    }

    #[test]
    fn every_row_does_what_it_says() {
        for row in table::rows() {
            for word in words(row) {
                let (before, other) = (MountOptions::default(), unlike());
                let change = |options: &MountOptions| options.clone().changed_by(&[&word], false);
                match &row.what {
                    What::Flag(..) | What::Done(..) => {
                        let after = |options: &MountOptions| {
                            let (mut after, remarks) = change(options).unwrap();
                            assert_eq!(remarks, [], "{word}");
                            after.of_server.clone_from(&options.of_server);
                            after
                        };
                        let has_effect = after(&before) != before || after(&other) != other;
                        assert!(has_effect, "{word} changes nothing");
                    }
                    What::Ignored(reason) => {
                        let (after, remarks) = change(&before).unwrap();
                        assert_eq!(after, before, "{word}");
                        let line = remarks[0].to_string();
                        assert!(line.contains(&word) && line.contains(reason), "{line}");
                    }
                    What::Refused(reason) => {
                        let Failure(line) = change(&before).unwrap_err();
                        assert!(line.contains(&word) && line.contains(reason), "{line}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_value_that_is_missing_is_told() {
        let mut count = 0;
        for row in table::rows() {
            for name in row.names {
                if row.value.is_none_or(|value| value.is_optional) {
                    continue;
                }
                // Some are options without a value as well.
                let Err(Failure(line)) = parse(name) else {
                    continue;
                };
                assert!(
                    line.contains(&format!("{name}: a value is missing: {name}=")),
                    "{line}"
                );
                count += 1;
            }
        }
        assert!(count > 30, "{count}");
    }

    #[test]
    fn owners_cannot_be_mapped() {
        for list in ["X-mount.idmap=b:0:1000:1", "X-mount.idmap"] {
            let Failure(line) = parse(list).unwrap_err();
            assert!(line.contains("owners cannot be mapped"), "{line}");
        }
        parse("X-mount.mkdir,x-systemd.automount").unwrap();
    }

    #[test]
    fn users_that_are_not_there_are_told() {
        for (list, reason) in [
            ("uid=no-such-user", "there is no such user"),
            ("setuid=no-such-user", "there is no such user"),
            ("gid=no-such-group", "there is no such group"),
            ("uid=", "give a user"),
            ("gid=-1", "give a group"),
            ("uid=4294967295", "give a user"),
        ] {
            let Failure(line) = parse(list).unwrap_err();
            assert!(line.ends_with(&format!("{list}: {reason}")), "{line}");
        }
    }

    #[test]
    fn no_name_is_in_two_rows() {
        let mut seen = std::collections::HashSet::new();
        for row in table::rows() {
            for word in words(row) {
                assert!(std::ptr::eq(table::find(&word).unwrap(), row), "{word}");
                assert!(seen.insert(word.clone()), "{word}");
            }
        }
        assert!(seen.len() > 150);
    }

    #[test]
    fn the_pages_have_every_option() {
        let (page, help) = (page(), help());
        for row in table::rows() {
            for name in row.names {
                assert!(page.contains(name), "{name}");
                let is_done = matches!(row.what, What::Flag(..) | What::Done(..));
                assert!(!is_done || help.contains(name), "{name}");
            }
        }
        for line in page.lines().chain(help.lines()) {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }

    /// What mount(8) hands over of an fstab line that ext4 has had.
    #[test]
    fn lines_of_ext4_are_understood() {
        for list in [
            "rw,errors=remount-ro,data=ordered,commit=5,nofail,x-systemd.automount,_netdev",
            "defaults,noatime,nodiratime,discard,barrier=1,user_xattr,acl,stripe=128,lazytime",
            "rw,nosuid,nodev,noexec,user=joe,strictatime,iversion,silent,journal_checksum,delalloc",
            "ro,noatime,nobarrier,init_itable=10,auto_da_alloc,inode_readahead_blks=64,resuid=0",
        ] {
            parse(list).unwrap();
        }
    }

    #[test]
    fn what_is_for_something_else_is_told() {
        let told = |list: &str, is_memory| parse(list).unwrap().check_for(is_memory);
        for list in ["mode=700", "size=1m"] {
            assert!(told(list, false).is_err(), "{list}");
            told(list, true).unwrap();
        }
        for list in [
            "offset=1m",
            "errors=panic",
            "barrier=0",
            "commit=9",
            "umask=22",
        ] {
            assert!(told(list, true).is_err(), "{list}");
            told(list, false).unwrap();
        }
        for is_memory in [false, true] {
            told("noatime,allow_other,threads=2,uid=5,gid=5", is_memory).unwrap();
        }
        told("cache=64m,data_cache=64m", false).unwrap();
        let Failure(line) = told("data_cache=65m,cache=64m", false).unwrap_err();
        assert!(line.contains("data_cache"), "{line}");
    }

    #[test]
    fn sloppily_the_unknown_is_ignored() {
        let (_, remarks) = MountOptions::default()
            .changed_by(&["ro,what=7"], true)
            .unwrap();
        assert_eq!(remarks.len(), 1);
        assert!(remarks[0].to_string().contains("what=7"));
    }

    #[test]
    fn options_are_understood() {
        let options = parse(
            "ro,offset=1m,allow_other,noatime,nosuid,nodev,noexec,commit=30,size=50%,mode=1777,\
             uid=7,gid=root,umask=027,threads=3,writeback_cache,errors=remount-ro,data_cache=9m,\
             debug",
        )
        .unwrap();
        assert!(options.kernel.is_read_only && options.kernel.allow_other && options.is_debug);
        assert!(
            !options.kernel.allows_suid
                && !options.kernel.allows_devices
                && !options.kernel.allows_execution
        );
        assert_eq!(options.offset_bytes, 1 << 20);
        assert_eq!(options.kernel.atime, AtimePolicy::Noatime);
        assert_eq!(options.commit_interval, Duration::from_secs(30));
        assert_eq!(options.size, Some(Size::PercentOfMemory(50)));
        assert_eq!(
            (
                options.mode,
                options.uid,
                options.gid,
                options.kernel.threads
            ),
            (Some(0o1777), Some(7), Some(0), Some(3))
        );
        assert_eq!(options.umask, Some(0o027));
        assert!(options.kernel.has_writeback_cache);
        assert_eq!(options.on_error, Some(OnError::ReadOnly));
    }

    #[test]
    fn acls_count_unless_told_otherwise() {
        assert!(parse("").unwrap().has_acls);
        assert!(!parse("noacl").unwrap().has_acls);
        assert!(parse("noacl,acl").unwrap().has_acls);
    }

    #[test]
    fn locking_schemes_have_names() {
        assert_eq!(parse("").unwrap().locking, LockingScheme::Fine);
        let options = parse("locking=fine,locking=per-superblock").unwrap();
        assert_eq!(options.locking, LockingScheme::PerSuperblock);
    }

    #[test]
    fn the_defaults_are_those_of_a_fuse_mount() {
        let options = parse("defaults").unwrap();
        assert!(!options.kernel.is_read_only && !options.kernel.allow_other);
        assert!(
            !options.kernel.allows_suid
                && !options.kernel.allows_devices
                && options.kernel.allows_execution
        );
        assert_eq!(options.kernel.atime, AtimePolicy::Relatime);
        assert_eq!(options.commit_interval, Duration::from_secs(5));
    }

    #[test]
    fn zero_is_the_default_where_others_have_it_so() {
        let options = parse("commit=9,sizelimit=1m,commit=0,sizelimit=0").unwrap();
        assert_eq!(options.commit_interval, Duration::from_secs(5));
        assert_eq!(options.size_limit_bytes, None);
    }

    #[test]
    fn the_last_one_counts_also_over_several_lists() {
        assert!(!parse("ro,rw").unwrap().kernel.is_read_only);
        let lists = ["rw", "suid,ro"];
        let (options, _) = MountOptions::default().changed_by(&lists, false).unwrap();
        assert!(options.kernel.is_read_only);
        assert!(parse("nosuid,suid").unwrap().kernel.allows_suid);
    }

    #[test]
    fn what_speaks_to_mount_is_accepted() {
        parse("defaults,nofail,user,_netdev,x-systemd.automount,comment=a,default_permissions,,")
            .unwrap();
    }

    #[test]
    fn unknown_and_wrong_options_are_named() {
        for (list, word) in [
            ("ro,rwx", "rwx"),
            ("ro=1", "ro=1"),
            ("commit", "commit"),
            ("foo=1", "foo"),
            ("offset=abc", "offset=abc"),
            ("offset=5%", "offset=5%"),
            ("mode=999", "mode=999"),
            ("mode=77777", "mode=77777"),
            ("uid=-1", "uid=-1"),
            ("uid=4294967295", "uid=4294967295"),
            ("uid=", "uid="),
            ("gid=no-such-group", "gid=no-such-group"),
            ("umask=1000", "umask=1000"),
            ("umask=rwx", "umask=rwx"),
            ("commit=9999999", "commit=9999999"),
            ("threads=0", "threads=0"),
            ("size=", "size="),
            ("allow_root", "allow_root"),
            ("sizelimit=abc", "sizelimit=abc"),
            ("cache=0", "1m at least"),
            ("cache=1", "1m at least"),
            ("cache=0%", "1m at least"),
            ("data_cache=1000k", "1m at least"),
            ("data=journal", "data=journal"),
            ("stripe=foo", "stripe=foo"),
            ("max_batch_time=", "max_batch_time="),
            ("resuid=5", "resuid=5"),
            ("errors=ignore", "errors=ignore"),
            ("subtype=ext4", "subtype=ext4"),
            ("sandbox=yes", "sandbox=yes"),
            ("setuid=no-such-user", "setuid=no-such-user"),
            ("locking=big", "big-spin"),
            ("locking=unlocked-data", "one of fine"),
        ] {
            let Failure(line) = parse(list).unwrap_err();
            assert!(line.contains(word), "{list}: {line}");
        }
    }

    #[test]
    fn commas_can_be_escaped() {
        assert_eq!(
            parse("fsname=a\\,b\\\\c,ro").unwrap().source.as_deref(),
            Some("a,b\\c")
        );
    }
}
