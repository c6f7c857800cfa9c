//! `finefs lsof`

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use finefs_fuse::MountPoint;
use rustix::process::Uid;
use serde::Serialize;

use crate::channel::{Channel, User};
use crate::holders::{Access, Holder, How, Unseen, holders};
use crate::image::text::without_controls;
use crate::target::Target;
use crate::{CliResult, Failure, output, say};

/// Show who uses a file system: open files, mappings, working directories; or the clients of a
/// served one
///
/// As lsof(8) has it: FD is the number of a descriptor with r, w or u (both) behind it, or cwd, rtd
/// (root), txt (program) or mem (mapping, with w if stores reach the file). Its status is 1 where
/// nobody uses it. The server is not asked. Other users' processes are shown to root alone; those
/// that the kernel hides from root too are named.
///
/// Of what is served, it shows the clients that are connected, and their locks: NFS 3 clients tell
/// nobody which files they have open.
#[derive(Args)]
pub(crate) struct Lsof {
    /// The directory that it is mounted at, the image, or the address that it is served at
    #[arg(value_name = "DIR|IMAGE|ADDRESS:PORT")]
    target: PathBuf,
    /// Only what can write, and so keeps it from becoming read-only
    #[arg(short, long)]
    writers: bool,
    /// As JSON, for scripts
    #[arg(long)]
    json: bool,
}

/// One use as scripts read it.
#[derive(Serialize)]
struct Record {
    command: String,
    pid: u32,
    uid: u32,
    fd: String,
    writes: bool,
    path: String,
}

impl Lsof {
    pub(crate) fn run(self) -> CliResult<ExitCode> {
        let mount = match Target::find(&self.target)? {
            Target::Mount(mount) => mount,
            Target::Served(channel, name) => return self.clients(&channel, &name),
        };
        let (found, unseen) = users(&mount)?;
        let shown = found
            .iter()
            .filter(|holder| !self.writers || holder.may_write());
        let records: Vec<Record> = shown.map(Record::of).collect();
        if self.json {
            let text = serde_json::to_string_pretty(&records).map_err(Failure::new)?;
            output::print(&(text + "\n"))?;
        } else if !records.is_empty() {
            let hides = std::io::stdout().is_terminal();
            output::print(&table(&records, hides))?;
        }
        hidden(&unseen, rustix::process::geteuid())
            .iter()
            .for_each(say);
        Ok(match records.is_empty() {
            true => ExitCode::FAILURE,
            false => ExitCode::SUCCESS,
        })
    }
}

impl Lsof {
    /// The clients of what is served.
    fn clients(&self, channel: &Channel, name: &str) -> CliResult<ExitCode> {
        let users = channel.users();
        let users = users.map_err(|reason| Failure::new(format!("{name}: {reason}")))?;
        if self.json {
            let text = serde_json::to_string_pretty(&users).map_err(Failure::new)?;
            output::print(&(text + "\n"))?;
        } else if !users.is_empty() {
            output::print(&table_of_clients(&users))?;
        }
        Ok(match users.is_empty() {
            true => ExitCode::FAILURE,
            false => ExitCode::SUCCESS,
        })
    }
}

fn table_of_clients(users: &[User]) -> String {
    let mut text = format!("{:<39} {:<24} USE\n", "CLIENT", "NAME");
    for user in users {
        let what = match &user.lock {
            Some((owner, export, ino)) => format!("lock of {owner} on inode {ino} of {export}"),
            None if user.connections == 1 => "1 connection".to_owned(),
            None => format!("{} connections", user.connections),
        };
        let name = user.name.as_deref().unwrap_or("-");
        text += &format!("{:<39} {:<24} {what}\n", user.client, name.escape_debug());
    }
    text
}

/// What keeps a mount from becoming read-only, for standard error.
pub(crate) fn writers(mount: &MountPoint) -> String {
    let Ok((found, _)) = users(mount) else {
        return String::new();
    };
    let writers: Vec<Record> = found
        .iter()
        .filter(|holder| holder.may_write())
        .map(Record::of)
        .collect();
    match writers.is_empty() {
        true => String::new(),
        false => table(&writers, std::io::stderr().is_terminal()),
    }
}

/// What is said to `me` of processes that could not be looked into: of others, how many; of those
/// that protect themselves from their own user, or from root, which.
fn hidden(unseen: &[Unseen], me: Uid) -> Vec<String> {
    let is_of_others = |process: &&Unseen| !me.is_root() && process.uid != me.as_raw();
    let (others, named): (Vec<&Unseen>, Vec<&Unseen>) = unseen.iter().partition(is_of_others);
    let count = match others.len() {
        0 => None,
        1 => Some("1 process of others cannot be looked into".to_owned()),
        count => Some(format!("{count} processes of others cannot be looked into")),
    };
    let names = named.iter().map(|process| {
        let Unseen { pid, command, .. } = process;
        format!("process {pid} ({command}) cannot be looked into: the kernel denies it")
    });
    count.into_iter().chain(names).collect()
}

fn users(mount: &MountPoint) -> CliResult<(Vec<Holder>, Vec<Unseen>)> {
    holders(mount.device).map_err(|error| Failure::new(format!("/proc: {error}")))
}

impl Record {
    fn of(holder: &Holder) -> Record {
        let fd = match holder.how {
            How::Open { descriptor, access } => match access {
                Access::Read => format!("{descriptor}r"),
                Access::Write => format!("{descriptor}w"),
                Access::ReadWrite => format!("{descriptor}u"),
                Access::None => descriptor.to_string(),
            },
            How::Mapped { is_written: true } => "memw".to_owned(),
            How::Mapped { is_written: false } => "mem".to_owned(),
            How::Directory => "cwd".to_owned(),
            How::Root => "rtd".to_owned(),
            How::Program => "txt".to_owned(),
        };
        Record {
            command: holder.command.clone(),
            pid: holder.pid,
            uid: holder.uid,
            fd,
            writes: holder.may_write(),
            path: holder.path.display().to_string(),
        }
    }
}

/// A line each. `hides` says that names go to a terminal, which control characters would change.
fn table(records: &[Record], hides: bool) -> String {
    let name = |name: &str| match hides {
        true => String::from_utf8_lossy(&without_controls(name.as_bytes())).into_owned(),
        false => name.to_owned(),
    };
    let mut text = format!(
        "{:<15} {:>7} {:>6} {:>5} NAME\n",
        "COMMAND", "PID", "USER", "FD"
    );
    for record in records {
        text += &format!(
            "{:<15} {:>7} {:>6} {:>5} {}\n",
            name(&record.command),
            record.pid,
            record.uid,
            record.fd,
            name(&record.path)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_no_control_characters() {
        let record = Record {
            command: "a\x1b[31mb".to_owned(),
            pid: 7,
            uid: 0,
            fd: "3w".to_owned(),
            writes: true,
            path: "/mnt/ä\n\x1b]0;x\x07".to_owned(),
        };
        let records = [record];
        let shown = table(&records, true);
        assert_eq!(shown.lines().count(), 2, "{shown}");
        assert!(shown.contains("a?[31mb "), "{shown}");
        assert!(shown.ends_with(" /mnt/ä??]0;x?\n"), "{shown}");
        let raw = table(&records, false);
        assert!(raw.ends_with(" /mnt/ä\n\x1b]0;x\x07\n"), "{raw}");
    }

    #[test]
    fn only_processes_of_other_users_are_of_others() {
        let unseen = |pid, uid| Unseen {
            pid,
            uid,
            command: "init".to_owned(),
        };
        let [first, user, other] = [unseen(1, 0), unseen(7, 1000), unseen(8, 1001)];
        let told = |unseen: &[&Unseen], me| {
            let unseen: Vec<Unseen> = unseen.iter().copied().cloned().collect();
            hidden(&unseen, Uid::from_raw(me)).join("\n")
        };
        let denied =
            |pid| format!("process {pid} (init) cannot be looked into: the kernel denies it");
        assert_eq!(told(&[], 0), "");
        assert_eq!(told(&[&first], 0), denied(1));
        assert_eq!(told(&[&user], 0), denied(7));
        assert_eq!(
            told(&[&first], 1000),
            "1 process of others cannot be looked into"
        );
        assert_eq!(
            told(&[&first, &user, &other], 1000),
            "2 processes of others cannot be looked into\n".to_owned() + &denied(7)
        );
    }
}
