//! The status monitor (NSM): which clients are to be told when the server was started anew, so that
//! they ask again for the locks that they had; and for how long nobody else gets one (the grace
//! period).
//!
//! # The file
//! Where a file is given, it names the clients that may have locks, and a number that is odd and
//! grows with each start (the state of NSM). It is written beside, renamed and made durable before
//! the first lock of a client is given. So after a crash all who had locks are in it; after a start
//! without any in it there is no grace period. Clients that have no locks any more stay in it until
//! the grace period or the server ends, or they become too many.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use finefs_locks::Mutex;

use super::hosts::{Host, Hosts};
use crate::classes;

/// So many clients may be in the file beside twice those that may have locks.
const WITHOUT_LOCKS_MAX: usize = 64;

/// A client as the file has it: its address, the server's address that it uses, its name.
type Known = (IpAddr, IpAddr, Vec<u8>);

/// See the module's head.
pub(super) struct Monitor {
    path: Option<PathBuf>,
    /// The state of this start.
    pub state: u32,
    /// Each of them is in the file.
    known: Mutex<BTreeSet<Known>>,
    /// Those that had locks at the last end.
    pub before: Vec<Known>,
    grace_end: Option<Instant>,
}

impl Monitor {
    /// With the file of before. A file that says nonsense is an error, and so is a grace period
    /// that no clock sees the end of.
    pub(super) fn new(path: Option<PathBuf>, grace: Duration) -> io::Result<Monitor> {
        let text = match &path {
            Some(path) => match std::fs::read_to_string(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
                read => read?,
            },
            None => String::new(),
        };
        let (state, before) = parse(&text).ok_or_else(|| {
            io::Error::other("it is not what a server writes; remove it, and locks are lost")
        })?;
        let grace_end = match before.is_empty() {
            true => None,
            false => Some(Instant::now().checked_add(grace).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidInput, "the grace period is too long")
            })?),
        };
        let monitor = Monitor {
            path,
            state: state.wrapping_add(2) | 1,
            known: Mutex::new(&classes::LOCK_MONITOR, before.iter().cloned().collect()),
            before,
            grace_end,
        };
        monitor.write(&monitor.known.lock())?;
        Ok(monitor)
    }

    /// True while only locks of before are given.
    pub(super) fn is_in_grace(&self) -> bool {
        self.grace_end.is_some_and(|end| Instant::now() < end)
    }

    /// When the grace period ends.
    pub(super) fn grace_end(&self) -> Option<Instant> {
        self.grace_end
    }

    /// A client, one of these, gets a lock. Where this fails it must not get one.
    pub(super) fn add(&self, host: &Host, hosts: &Hosts) -> io::Result<()> {
        if host.is_noted() {
            return Ok(());
        }
        let mut known = self.known.lock();
        if !known.contains(&as_known(host)) {
            // Before the end of the grace period some may not have asked yet.
            let is_overgrown = !self.is_in_grace()
                && known.len() > 2 * hosts.with_locks().len() + WITHOUT_LOCKS_MAX;
            let with_locks = match is_overgrown {
                true => hosts.to_be_noted(),
                false => Vec::new(),
            };
            let mut next = match is_overgrown {
                true => with_locks.iter().map(|host| as_known(host)).collect(),
                false => known.clone(),
            };
            next.insert(as_known(host));
            self.replace(&mut known, next)?;
            with_locks.iter().for_each(|host| host.mark_noted());
        }
        host.mark_noted();
        Ok(())
    }

    /// Only those that `with_locks` gives have locks. It is called while nobody is added: a client
    /// that it does not know yet comes to [`Monitor::add`] afterwards.
    pub(super) fn keep(&self, with_locks: impl FnOnce() -> Vec<Arc<Host>>) -> io::Result<()> {
        let mut known = self.known.lock();
        let hosts = with_locks();
        let next = hosts.iter().map(|host| as_known(host)).collect();
        self.replace(&mut known, next)?;
        hosts.iter().for_each(|host| host.mark_noted());
        Ok(())
    }

    /// Writes who is known from now on. A write that failed may have changed the file or not: then
    /// only those stay known who are in it either way.
    fn replace(&self, known: &mut BTreeSet<Known>, next: BTreeSet<Known>) -> io::Result<()> {
        let written = self.write(&next);
        match &written {
            Ok(()) => *known = next,
            Err(_) => known.retain(|host| next.contains(host)),
        }
        written
    }

    fn write(&self, known: &BTreeSet<Known>) -> io::Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let mut text = format!("finefs locks 1\nstate {}\n", self.state);
        for (address, server, name) in known {
            let name: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
            text += &format!("{address} {server} {name}\n");
        }
        let beside = beside(path);
        let mut file = File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)?;
        sync_directory_of(path)
    }
}

/// Where a file is written that is to take the place of this one: its whole name with an end, since
/// what looks like an extension may tell servers apart (`locks-192.0.2.5:2049`).
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Makes a rename durable. A file system that knows no sync of directories says EINVAL.
fn sync_directory_of(path: &Path) -> io::Result<()> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    match File::open(directory.unwrap_or(Path::new(".")))?.sync_all() {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

fn as_known(host: &Host) -> Known {
    (host.address, host.server, host.name.to_vec())
}

fn parse(text: &str) -> Option<(u32, Vec<Known>)> {
    if text.is_empty() {
        return Some((0, Vec::new()));
    }
    let mut lines = text.lines();
    if lines.next()? != "finefs locks 1" {
        return None;
    }
    let state = lines.next()?.strip_prefix("state ")?.parse().ok()?;
    let known = lines.map(|line| {
        let mut words = line.split(' ');
        let (address, server) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let (pairs, []) = words.next()?.as_bytes().as_chunks::<2>() else {
            return None;
        };
        let name = pairs.iter().map(|pair| {
            let pair = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(pair, 16).ok()
        });
        Some((address, server, name.collect::<Option<_>>()?))
    });
    Some((state, known.collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn who_had_locks_is_known_after_a_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("locks");
        let open = || Monitor::new(Some(path.clone()), Duration::from_secs(60)).unwrap();
        let first = open();
        assert!(!first.is_in_grace() && first.state % 2 == 1);
        let address = IpAddr::from([192, 0, 2, 1]);
        let server = IpAddr::from([192, 0, 2, 9]);
        let host = Host::new(address, server, b"a name\n");
        first.add(&host, &Hosts::new()).unwrap();
        let second = open();
        assert!(second.is_in_grace());
        assert!(second.state > first.state && second.state % 2 == 1);
        assert_eq!(second.before, [(address, server, b"a name\n".to_vec())]);
        // Until it says otherwise they are known.
        assert!(open().is_in_grace());
        second.keep(Vec::new).unwrap();
        assert!(!open().is_in_grace());
    }

    #[test]
    fn nobody_is_added_between_the_look_at_who_has_locks_and_the_note() {
        let monitor = Monitor::new(None, Duration::ZERO).unwrap();
        let look = || {
            assert!(monitor.known.try_lock().is_none());
            Vec::new()
        };
        monitor.keep(look).unwrap();
    }

    #[test]
    fn each_file_has_a_name_beside_it_for_itself() {
        let directory = tempfile::tempdir().unwrap();
        let of_other = directory.path().join("locks-10.0.0.new");
        std::fs::write(&of_other, "another server's").unwrap();
        let address = IpAddr::from([192, 0, 2, 1]);
        for name in ["locks-10.0.0.5:2049", "locks.new"] {
            let path = directory.path().join(name);
            let monitor = Monitor::new(Some(path.clone()), Duration::ZERO).unwrap();
            // A file that is replaced, not written over, stays as it was to who has it open.
            let mut before = File::open(&path).unwrap();
            let host = Host::new(address, address, b"a");
            monitor.add(&host, &Hosts::new()).unwrap();
            let mut text = String::new();
            before.read_to_string(&mut text).unwrap();
            assert!(!text.contains("192.0.2.1"), "{name}: {text}");
        }
        let of_other = std::fs::read_to_string(of_other).unwrap();
        assert_eq!(of_other, "another server's");
    }

    #[test]
    fn a_client_that_could_not_be_noted_is_not_known() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("place");
        let path = place.join("locks");
        std::fs::create_dir(&place).unwrap();
        let open = || Monitor::new(Some(path.clone()), Duration::from_secs(60)).unwrap();
        let (monitor, hosts) = (open(), Hosts::new());
        let address = IpAddr::from([192, 0, 2, 1]);
        let [first, second] = ["a", "b"].map(|name| Host::new(address, address, name.as_bytes()));
        monitor.add(&first, &hosts).unwrap();
        // The place is away for a while.
        let elsewhere = directory.path().join("elsewhere");
        std::fs::rename(&place, &elsewhere).unwrap();
        for _ in 0..2 {
            monitor.add(&second, &hosts).unwrap_err();
        }
        monitor.keep(|| vec![Arc::new(second)]).unwrap_err();
        std::fs::rename(&elsewhere, &place).unwrap();
        // As hosts that were forgotten and come again.
        let [first, second] = ["a", "b"].map(|name| Host::new(address, address, name.as_bytes()));
        // Whatever became of the file, both are in it from now on.
        monitor.add(&first, &hosts).unwrap();
        monitor.add(&second, &hosts).unwrap();
        let known = open().before.into_iter().map(|(_, _, name)| name);
        assert_eq!(known.collect::<Vec<_>>(), [b"a", b"b"]);
    }

    #[test]
    fn clients_without_locks_do_not_pile_up() {
        let (monitor, hosts) = (Monitor::new(None, Duration::ZERO).unwrap(), Hosts::new());
        let server = IpAddr::from([192, 0, 2, 9]);
        let reserving = |number: u32| {
            let address = IpAddr::from(number.to_be_bytes());
            let host = hosts.reserving((address, server, b"a")).ok().unwrap();
            monitor.add(&host, &hosts).unwrap();
            host
        };
        let stays = reserving(1);
        let mut most = 0;
        for number in 2..1000 {
            let host = reserving(number);
            let known = monitor.known.lock();
            assert!(known.contains(&as_known(&stays)) && known.contains(&as_known(&host)));
            most = most.max(known.len());
        }
        assert!(
            (WITHOUT_LOCKS_MAX..2 * WITHOUT_LOCKS_MAX).contains(&most),
            "{most}"
        );
        assert!(stays.is_noted());
    }

    #[test]
    fn a_grace_period_without_end_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("locks");
        let open = |grace| Monitor::new(Some(path.clone()), grace);
        let address = IpAddr::from([192, 0, 2, 1]);
        let monitor = open(Duration::MAX).unwrap();
        let host = Host::new(address, address, b"a");
        monitor.add(&host, &Hosts::new()).unwrap();
        let error = open(Duration::MAX).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(open(Duration::from_secs(86_400)).unwrap().is_in_grace());
    }

    #[test]
    fn a_file_of_something_else_is_refused() {
        for text in [
            "hello\n",
            "finefs locks 1\nstate x\n",
            "finefs locks 1\nstate 1\na b c\n",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
