//! The channel on which the server of a mounted or served file system is asked and told things.
//!
//! A socket in the server's runtime directory (`runtime_dir`), named after the file system's device
//! number, which anybody reads in mountinfo, as whose server it is: finding it does not touch the
//! mount. What `finefs serve` serves has one named after its address, and one after each image
//! (`target`). Each end asks the kernel for the other's user: the server answers its own user and
//! root, and a client believes only the user that has mounted the file system, as the kernel has
//! it.
//!
//! The protocol is that of [`finefs_lockmeter::control`]: a line of JSON each way. What takes long
//! is answered later, so nobody waits for another's freeze.
//!
//! | thread | answers |
//! |---|---|
//! | `control` | all that can be answered at once |
//! | `changes` | freeze, thaw, sync, quotas and moves, one after the other |
//! | the one that serves to the end | those that wait for the end |
//!
//! # Locking
//! `cli.end`, over those that wait for the end.
//!
//! # References
//! unix(7), "SO_PEERCRED".

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use finefs::LockingScheme;
use finefs::front_end::namespace::{Error, Ino, Namespace};
use finefs_fuse::MountPoint;
use finefs_lockmeter::control::{
    Answerer, Asked, Reply, Request, Server, answer, ask_on, begin_asking, connect,
};
use finefs_locks::{LockClass, Mutex};
use rustix::process::Uid;
use serde::{Deserialize, Serialize};

use crate::quota_order::Order;
use crate::runtime_dir::{Socket, places, verify};

/// Longest time that an answer may take, and that a server may take to accept somebody.
const PATIENCE: Duration = Duration::from_secs(10);

/// The same where one goes on without it.
const SHORT_PATIENCE: Duration = Duration::from_secs(2);

/// Longest time that writing everything out may take.
pub(crate) const WRITE_OUT: Duration = Duration::from_secs(600);

/// How long a client waits for a server that does not listen yet.
const START: Duration = Duration::from_secs(1);

/// What can be asked of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Change {
    Freeze,
    Thaw,
    /// Everything goes to the image.
    Sync,
    /// The same, and changes are refused from then on.
    Refuse,
    /// Changes are taken again.
    Accept,
    /// From now on all changes of directories are on the image when they return, or not.
    SynchronousDirectories(bool),
}

impl Change {
    /// What is being done, for the user.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Change::Freeze => "freezing",
            Change::Thaw => "thawing",
            Change::Sync | Change::Refuse => "writing out",
            Change::Accept => "opening",
            Change::SynchronousDirectories(_) => "setting",
        }
    }

    /// Does it; the error is a line for the user.
    pub(crate) fn apply(self, namespace: &Namespace) -> Result<(), String> {
        let done = match self {
            Change::Freeze => namespace.freeze(),
            Change::Thaw => namespace.thaw(),
            Change::Sync => namespace.sync(),
            Change::Refuse => namespace.refuse_changes(true),
            Change::Accept => namespace.refuse_changes(false),
            Change::SynchronousDirectories(are_so) => {
                namespace.set_synchronous_directories(are_so);
                Ok(())
            }
        };
        done.map_err(|error| match error {
            Error::Busy => "is frozen already".to_owned(),
            Error::Invalid => "is not frozen".to_owned(),
            error => error.to_string(),
        })
    }
}

/// What is asked.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Question {
    /// The lock meter's questions.
    Meter(Request),
    /// That changes wait, go on, or go to the image.
    Change(Change),
    /// That quotas are set.
    Quota(Order),
    /// In how many runs of blocks a file lies; and that these are moved together.
    Runs { ino: u64, are_moved: bool },
    /// What locks stand around operations.
    Locking,
    /// Whether the server itself can change nothing.
    ReadOnly,
    /// Whether changes wait for a thaw.
    Frozen,
    /// How it has ended. Answered when it has.
    End,
    /// Who uses what is served.
    Users,
    /// That the server ends.
    Stop,
}

/// What is answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// The lock meter's answers.
    Meter(Reply),
    /// The name of the locking scheme.
    Locking(String),
    /// The server can change nothing.
    ReadOnly(bool),
    /// Changes wait for a thaw.
    Frozen(bool),
    /// It has ended; the error is a line for the user.
    Ended(Result<(), String>),
    /// Who uses it.
    Users(Vec<User>),
    /// Runs of blocks: before and after.
    Runs(u64, u64),
    /// It was done.
    Done,
    /// Why there is none.
    Refused(String),
}

/// A use of what is served.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct User {
    /// The client's address.
    pub client: String,
    /// Its name, where it has told one.
    pub name: Option<String>,
    /// Connections, or 0 where this is a lock.
    pub connections: usize,
    /// A lock: of which owner on the client, in which export, on which inode.
    pub lock: Option<(u32, String, u64)>,
}

/// What is asked about, and the server that is asked.
pub(crate) struct Subject {
    /// One or several.
    pub namespaces: Vec<Arc<Namespace>>,
    pub locking: LockingScheme,
    pub is_read_only: bool,
    /// Of what is served: its users, and how it is ended.
    pub serving: Option<Arc<dyn Serving>>,
}

/// A server of `finefs serve`.
pub(crate) trait Serving: Send + Sync {
    fn users(&self) -> Vec<User>;
    fn stop(&self);
}

/// The waiters for the end, and what it came to.
#[derive(Default)]
struct End {
    outcome: Option<Answer>,
    waiting: Vec<Answerer<Answer>>,
}

/// The waiters for the end.
static END: LockClass = LockClass::new("cli.end", 99);

/// The server's end of the channel.
pub(crate) struct Answering {
    /// Its name goes before it does; `None` where the attendant has it.
    socket: Option<Socket>,
    server: Server,
    end: Arc<Mutex<End>>,
}

impl Answering {
    /// For the file system mounted at `directory`. The error is the reason, for the user.
    pub(crate) fn open(
        directory: &Path,
        namespace: Arc<Namespace>,
        locking: LockingScheme,
        is_read_only: bool,
    ) -> Result<Answering, String> {
        let mount = finefs_fuse::mount_at(directory).map_err(|error| error.to_string())?;
        let mount = mount.ok_or("its mount is gone")?;
        let subject = Subject {
            namespaces: vec![namespace],
            locking,
            is_read_only,
            serving: None,
        };
        Answering::about(subject, &name(&mount))
    }

    /// At a socket of this name.
    pub(crate) fn about(subject: Subject, name: &str) -> Result<Answering, String> {
        let (socket, listener) = Socket::listen(name).map_err(|reasons| reasons.to_string())?;
        let end = Arc::new(Mutex::new(&END, End::default()));
        let for_answers = Arc::clone(&end);
        let Subject {
            namespaces,
            locking,
            is_read_only,
            serving,
        } = subject;
        let frozen = namespaces.clone();
        let is_frozen = move || frozen.iter().any(|namespace| namespace.is_frozen());
        let changes = start_changes(namespaces).map_err(|error| error.to_string())?;
        let server = Server::answering_later(listener, move |question, answerer| {
            let reply = match question {
                Ok(Question::Meter(request)) => Answer::Meter(answer(&request)),
                Ok(Question::Locking) => Answer::Locking(locking.name().to_owned()),
                Ok(Question::ReadOnly) => Answer::ReadOnly(is_read_only),
                Ok(Question::Frozen) => Answer::Frozen(is_frozen()),
                // That thread goes with this one; the client is told by the closed connection.
                Ok(Question::Change(change)) => {
                    let _ = changes.send((Task::Change(change), answerer));
                    return;
                }
                Ok(Question::Quota(order)) => {
                    let _ = changes.send((Task::Quota(order), answerer));
                    return;
                }
                Ok(Question::Runs { ino, are_moved }) => {
                    let _ = changes.send((Task::Runs { ino, are_moved }, answerer));
                    return;
                }
                Ok(Question::End) => {
                    let mut end = for_answers.lock();
                    match &end.outcome {
                        Some(outcome) => answerer.give(outcome),
                        None => end.waiting.push(answerer),
                    }
                    return;
                }
                Ok(Question::Users) => match &serving {
                    Some(serving) => Answer::Users(serving.users()),
                    None => Answer::Refused("the kernel knows who uses a mount".to_owned()),
                },
                Ok(Question::Stop) => match &serving {
                    Some(serving) => {
                        serving.stop();
                        Answer::Done
                    }
                    None => Answer::Refused("a mount is ended by the kernel".to_owned()),
                },
                Err(reason) => Answer::Refused(reason),
            };
            answerer.give(&reply);
        });
        let server = server.map_err(|error| error.to_string())?;
        Ok(Answering {
            socket: Some(socket),
            server,
            end,
        })
    }

    /// Where its socket is.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.socket.as_ref().map(Socket::directory)
    }

    /// The socket, for somebody else to remove.
    pub(crate) fn take_socket(&mut self) -> Option<Socket> {
        self.socket.take()
    }

    /// The server has ended so: tells the clients that wait for it, and answers no more.
    pub(crate) fn finish(self, outcome: &Result<(), String>) {
        let Answering {
            socket,
            server,
            end,
        } = self;
        drop(socket);
        let outcome = Answer::Ended(outcome.clone());
        let mut end = end.lock();
        for answerer in end.waiting.drain(..) {
            answerer.give(&outcome);
        }
        end.outcome = Some(outcome);
        drop(end);
        // Clients that have just asked are answered before it returns.
        drop(server);
    }
}

/// What takes long.
enum Task {
    Change(Change),
    Quota(Order),
    Runs { ino: u64, are_moved: bool },
}

impl Task {
    fn carry_out(self, namespaces: &[Arc<Namespace>]) -> Result<Answer, String> {
        match (self, namespaces) {
            (Task::Change(change), all) => apply_to_all(change, all).map(|()| Answer::Done),
            (Task::Quota(order), [one]) => order.apply(one).map(|()| Answer::Done),
            (Task::Runs { ino, are_moved }, [one]) => runs(one, Ino(ino), are_moved),
            _ => Err("serves several; name the image".to_owned()),
        }
    }
}

/// In how many runs of blocks a file lies, before and after they were moved, if they are.
fn runs(namespace: &Namespace, ino: Ino, are_moved: bool) -> Result<Answer, String> {
    let told = namespace.runs(ino).and_then(|before| {
        let after = match are_moved && before > 1 {
            true => namespace.defragment(ino)?,
            false => before,
        };
        Ok(Answer::Runs(before, after))
    });
    told.map_err(|error| error.to_string())
}

/// Starts the thread that freezes, thaws, syncs and sets quotas.
fn start_changes(namespaces: Vec<Arc<Namespace>>) -> io::Result<Sender<(Task, Answerer<Answer>)>> {
    let (sender, changes) = std::sync::mpsc::channel::<(Task, Answerer<Answer>)>();
    let thread = std::thread::Builder::new().name("changes".into());
    thread.spawn(move || {
        for (change, answerer) in changes {
            answerer.give(&match change.carry_out(&namespaces) {
                Ok(answer) => answer,
                Err(reason) => Answer::Refused(reason),
            });
        }
    })?;
    Ok(sender)
}

/// Does it to each; where one of several cannot be frozen, none is. One that is read-only among
/// others is as if it were frozen.
fn apply_to_all(change: Change, namespaces: &[Arc<Namespace>]) -> Result<(), String> {
    let is_of_some = matches!(change, Change::Freeze | Change::Thaw)
        && namespaces.iter().any(|namespace| !namespace.is_read_only());
    let concerned: Vec<_> = namespaces
        .iter()
        .filter(|namespace| !is_of_some || !namespace.is_read_only())
        .collect();
    for (at, namespace) in concerned.iter().enumerate() {
        let applied = change.apply(namespace);
        if applied.is_err() && change == Change::Freeze {
            for frozen in &concerned[..at] {
                // It was frozen a moment ago.
                let _ = Change::Thaw.apply(frozen);
            }
        }
        applied?;
    }
    Ok(())
}

/// Of the mount's socket.
fn name(mount: &MountPoint) -> String {
    let (major, minor) = mount.device;
    format!("mount-{major}:{minor}")
}

/// Of the socket for what is served at an address.
pub(crate) fn name_of_address(address: SocketAddr) -> String {
    format!("serve-{address}")
}

/// Why there is no answer.
pub(crate) enum NoAnswer {
    /// It takes longer than one waits; it may come another time.
    Late,
    /// There will be none; the reason, for the user.
    Gone(String),
}

impl From<NoAnswer> for String {
    fn from(reason: NoAnswer) -> String {
        match reason {
            NoAnswer::Late => "its server does not answer in time".into(),
            NoAnswer::Gone(reason) => reason,
        }
    }
}

fn wrong_answer() -> NoAnswer {
    NoAnswer::Gone("its server gives the wrong answer; is it of another version?".into())
}

/// A mount, as its server's client sees it.
pub struct Channel {
    owner: Uid,
    /// Where its server may have its sockets.
    places: Vec<PathBuf>,
    name: String,
}

impl Channel {
    /// Of this mount. The error is the reason, for the user.
    pub fn of(mount: &MountPoint) -> Result<Channel, String> {
        let owner = mount.owner.ok_or("the kernel does not tell whose it is")?;
        let owner = Uid::from_raw(owner);
        let me = rustix::process::geteuid();
        if !me.is_root() && me != owner {
            return Err("its server is another user's; ask as that user or as root".into());
        }
        Ok(Channel::named(owner, name(mount)))
    }

    /// To this user's `finefs serve` at an address.
    pub fn of_address(address: SocketAddr) -> Channel {
        let name = name_of_address(address);
        Channel::named(rustix::process::geteuid(), name)
    }

    /// To a server of this user at a socket of this name.
    pub(crate) fn named(owner: Uid, name: String) -> Channel {
        Channel {
            owner,
            places: places(owner),
            name,
        }
    }

    /// True when somebody listens.
    pub(crate) fn is_open(&self) -> bool {
        self.try_connect().is_ok()
    }

    /// Who uses what is served. The error is the reason, for the user.
    pub(crate) fn users(&self) -> Result<Vec<User>, String> {
        match self.ask(&Question::Users, PATIENCE)? {
            Answer::Users(users) => Ok(users),
            _ => Err(wrong_answer().into()),
        }
    }

    /// Has what is served end. The error is the reason, for the user.
    pub(crate) fn stop(&self) -> Result<(), String> {
        match self.ask(&Question::Stop, PATIENCE)? {
            Answer::Done => Ok(()),
            _ => Err(wrong_answer().into()),
        }
    }

    /// Asks the lock meter. The error is the reason, for the user.
    pub fn meter(&self, request: Request) -> Result<Reply, String> {
        Ok(self.meter_within(request, PATIENCE)?)
    }

    /// Asks the lock meter, and waits for so long.
    pub(crate) fn meter_within(
        &self,
        request: Request,
        patience: Duration,
    ) -> Result<Reply, NoAnswer> {
        match self.ask(&Question::Meter(request), patience)? {
            Answer::Meter(reply) => Ok(reply),
            _ => Err(wrong_answer()),
        }
    }

    /// Asks for the name of the locking scheme; `None` of a server that does not tell.
    pub fn locking(&self) -> Option<String> {
        match self.ask(&Question::Locking, PATIENCE) {
            Ok(Answer::Locking(name)) => Some(name),
            _ => None,
        }
    }

    /// Whether the server itself can change nothing.
    pub(crate) fn is_read_only(&self) -> Result<bool, String> {
        match self.ask(&Question::ReadOnly, PATIENCE)? {
            Answer::ReadOnly(is_read_only) => Ok(is_read_only),
            _ => Err(wrong_answer().into()),
        }
    }

    /// Whether changes wait for a thaw.
    pub(crate) fn is_frozen(&self) -> Result<bool, String> {
        match self.ask(&Question::Frozen, PATIENCE)? {
            Answer::Frozen(is_frozen) => Ok(is_frozen),
            _ => Err(wrong_answer().into()),
        }
    }

    /// Lets changes go on, where they wait. A server that does not answer, as where its storage
    /// hangs, is left the order. The error is the reason, for the user.
    pub(crate) fn thaw_if_frozen(&self) -> Result<(), String> {
        match self.ask(&Question::Frozen, SHORT_PATIENCE) {
            Ok(Answer::Frozen(true)) => self.change(Change::Thaw),
            Err(NoAnswer::Late) => {
                let order = &Question::Change(Change::Thaw);
                let left = |stream| begin_asking::<_, Answer>(stream, order).map(drop);
                self.connect().and_then(left).map_err(|e| e.to_string())
            }
            _ => Ok(()),
        }
    }

    /// Asks for a change. The error is the reason, for the user.
    pub(crate) fn change(&self, change: Change) -> Result<(), String> {
        match self.ask(&Question::Change(change), WRITE_OUT)? {
            Answer::Done => Ok(()),
            _ => Err(wrong_answer().into()),
        }
    }

    /// Has quotas set. The error is the reason, for the user.
    pub(crate) fn set_quota(&self, order: &Order) -> Result<(), String> {
        match self.ask(&Question::Quota(order.clone()), WRITE_OUT)? {
            Answer::Done => Ok(()),
            _ => Err(wrong_answer().into()),
        }
    }

    /// In how many runs of blocks a file lies, before and after they were moved, if they are. The
    /// error is the reason, for the user.
    pub(crate) fn runs(&self, ino: u64, are_moved: bool) -> Result<(u64, u64), String> {
        match self.ask(&Question::Runs { ino, are_moved }, WRITE_OUT)? {
            Answer::Runs(before, after) => Ok((before, after)),
            _ => Err(wrong_answer().into()),
        }
    }

    /// Asks to be told how it ends. `None` when the server cannot be asked.
    pub(crate) fn watch_end(&self) -> Option<EndWatch> {
        let stream = self.try_connect().ok()?;
        stream.set_read_timeout(Some(WRITE_OUT)).ok()?;
        begin_asking(stream, &Question::End).map(EndWatch).ok()
    }

    fn ask(&self, question: &Question, patience: Duration) -> Result<Answer, NoAnswer> {
        let asked = self.connect().and_then(|stream| {
            stream.set_read_timeout(Some(patience))?;
            ask_on(stream, question)
        });
        match asked {
            Ok(Answer::Refused(reason)) => Err(NoAnswer::Gone(reason)),
            Ok(answer) => Ok(answer),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(NoAnswer::Late),
            Err(error) => Err(NoAnswer::Gone(self.describe(&error))),
        }
    }

    /// Connects. A mount is there a moment before its server listens.
    fn connect(&self) -> io::Result<UnixStream> {
        let deadline = Instant::now() + START;
        loop {
            match self.try_connect() {
                Err(error) if is_absent(&error) && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                connected => return connected,
            }
        }
    }

    fn try_connect(&self) -> io::Result<UnixStream> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for place in &self.places {
            // Where others can write no server is; `describe` names such a place.
            if verify(place, self.owner).is_err() {
                continue;
            }
            match connect(&place.join(&self.name), PATIENCE) {
                Ok(stream) => {
                    let peer = rustix::net::sockopt::socket_peercred(&stream)?;
                    if peer.uid == self.owner {
                        return Ok(stream);
                    }
                    last = io::ErrorKind::PermissionDenied.into();
                }
                Err(error) if is_absent(&last) => last = error,
                Err(_) => {}
            }
        }
        Err(last)
    }

    fn describe(&self, error: &io::Error) -> String {
        if is_absent(error) {
            let names: Vec<_> = (self.places.iter())
                .map(|place| place.display().to_string())
                .collect();
            let mut said = format!(
                "its server does not answer: it has ended, or has no socket in {}",
                names.join(" or ")
            );
            for (place, name) in self.places.iter().zip(names) {
                match verify(place, self.owner) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        said += &format!("; {name}: {error}");
                    }
                    _ => {}
                }
            }
            return said;
        }
        match error.kind() {
            io::ErrorKind::PermissionDenied => "another user answers in its server's place".into(),
            io::ErrorKind::UnexpectedEof => "its server has ended".into(),
            _ => error.to_string(),
        }
    }
}

/// Nobody is there.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

/// The question how a server ends, asked and not answered yet.
pub(crate) struct EndWatch(Asked<Answer>);

impl EndWatch {
    /// Waits for the end; `None` when the server has ended without a word, or takes too long.
    pub(crate) fn wait(self) -> Option<Result<(), String>> {
        match self.0.wait().ok()? {
            Answer::Ended(outcome) => Some(outcome),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(owner: u32) -> MountPoint {
        MountPoint {
            device: (0, 1),
            path: "/nowhere".into(),
            kind: "fuse.finefs".into(),
            source: "x".into(),
            is_read_only: false,
            flags: Vec::new(),
            options: Vec::new(),
            owner: Some(owner),
        }
    }

    #[test]
    fn only_its_user_and_root_ask_a_server() {
        let me = rustix::process::geteuid();
        assert!(Channel::of(&mount(me.as_raw())).is_ok());
        let of_another = Channel::of(&mount(me.as_raw() + 1));
        assert_eq!(of_another.is_ok(), me.is_root());
    }

    #[test]
    fn it_is_frozen_once_and_thawed_once() {
        let namespace = finefs::MemoryOptions::new()
            .open_namespace(1 << 20)
            .unwrap();
        let apply = |change: Change| change.apply(&namespace);
        assert_eq!(apply(Change::Thaw).unwrap_err(), "is not frozen");
        apply(Change::Freeze).unwrap();
        assert!(namespace.is_frozen());
        assert_eq!(apply(Change::Freeze).unwrap_err(), "is frozen already");
        apply(Change::Thaw).unwrap();
        assert!(!namespace.is_frozen());
    }

    #[test]
    fn several_are_frozen_together_or_not() {
        let memory = || {
            finefs::MemoryOptions::new()
                .open_namespace(1 << 20)
                .unwrap()
        };
        let both = [memory(), memory()];
        Change::Freeze.apply(&both[1]).unwrap();
        let frozen = apply_to_all(Change::Freeze, &both);
        assert_eq!(frozen.unwrap_err(), "is frozen already");
        assert!(!both[0].is_frozen());
        Change::Thaw.apply(&both[1]).unwrap();
        apply_to_all(Change::Freeze, &both).unwrap();
        assert!(both.iter().all(|namespace| namespace.is_frozen()));
        apply_to_all(Change::Thaw, &both).unwrap();
    }
}
