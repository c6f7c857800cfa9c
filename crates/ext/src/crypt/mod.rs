//! Encrypted files (`encrypt`): the keys that were given, and what encrypts the files that they
//! are for.
//!
//! # Data model
//! A file's context names a master key; the file's own key follows from that and from the nonce of
//! the context. [`Keyring`] holds the master keys and, of files that were used, the ciphers: for a
//! file that comes to be from before its first commit on, when nothing of it is on the image yet,
//! and at least until that has put it there.
//!
//! | Module | What |
//! |---|---|
//! | `cipher` | keys, modes and ciphers |
//! | `choice` | the modes of directories that come to be encrypted |
//! | `without` | in its place, where those crates are left out |
//!
//! # Locking
//! `ext.keyring`, over the files' ciphers: a leaf, never held over I/O or a cipher.
//!
//! # References
//! Linux `Documentation/filesystems/fscrypt.rst`.

mod choice;
#[cfg(feature = "fscrypt")]
mod cipher;
#[cfg(not(feature = "fscrypt"))]
mod without;

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use choice::EncryptionChoice;
#[cfg(feature = "fscrypt")]
pub use cipher::MasterKey;
#[cfg(feature = "fscrypt")]
pub(crate) use cipher::{ContentCipher, FileIdentity, NameCipher};
use finefs_ext_disk::fscrypt::{Context, Policy, TARGET_HEADER_SIZE};
use finefs_locks::LockClass;
use finefs_namespace::Ino;
#[cfg(not(feature = "fscrypt"))]
pub use without::MasterKey;
#[cfg(not(feature = "fscrypt"))]
pub(crate) use without::{ContentCipher, FileIdentity, NameCipher};

use crate::sync::RwLock;

/// How long master keys are.
pub const KEY_BYTES: RangeInclusive<usize> = 16..=64;

/// The files' ciphers.
pub static KEYRING: LockClass = LockClass::new("ext.keyring", 79);

/// So many files' ciphers are kept; others are made again when they are needed.
const FILES_MAX: usize = 16_384;

/// Why a file's policy cannot be followed, though its key is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// The modes for contents and for names.
    Modes(u8, u8),
    /// Flags that are not known, or do not go with the modes.
    Flags(u8),
    /// The master key is shorter than so many bytes, which the modes ask for.
    ShortKey(usize),
    /// Something else that is not known.
    Unknown(&'static str),
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Why::Modes(contents, names) => {
                write!(f, "encryption modes {contents} and {names} are not known")
            }
            Why::Flags(flags) => write!(
                f,
                "encryption policy: flags {flags:#04x} are not known with its modes"
            ),
            Why::ShortKey(bytes) => write!(
                f,
                "the key is shorter than {bytes} bytes, which its encryption modes ask for"
            ),
            Why::Unknown(what) => write!(f, "encryption policy: unknown {what}"),
        }
    }
}

/// What encrypts a file.
pub(crate) enum FileCipher {
    /// Of a regular file.
    Content(Box<ContentCipher>),
    /// The names of a directory, the target of a link.
    Names(Box<NameCipher>),
}

impl FileCipher {
    pub fn content(&self) -> Option<&ContentCipher> {
        match self {
            FileCipher::Content(cipher) => Some(cipher),
            FileCipher::Names(_) => None,
        }
    }

    pub fn names(&self) -> Option<&NameCipher> {
        match self {
            FileCipher::Names(cipher) => Some(cipher),
            FileCipher::Content(_) => None,
        }
    }
}

/// Whether a file can be read.
#[derive(Clone)]
pub(crate) enum Protection {
    /// It is not encrypted.
    Plain,
    /// It is, and its key is not there, or its policy is not known.
    Locked,
    /// This encrypts it.
    Open(Arc<FileCipher>),
}

/// Whether the image says what is known of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Presence {
    /// Not yet: the inode may be blank, or that of an earlier use of the number.
    New,
    /// A commit is about to put it there.
    Taken,
    /// It does: what is known may be forgotten, to be looked at again.
    OnImage,
}

/// What is known of a file.
#[derive(Clone)]
pub(crate) struct KnownFile {
    pub protection: Protection,
    /// Of one that is encrypted.
    pub context: Option<Context>,
    pub presence: Presence,
}

impl KnownFile {
    /// One that is not encrypted.
    pub fn plain(presence: Presence) -> KnownFile {
        KnownFile {
            protection: Protection::Plain,
            context: None,
            presence,
        }
    }
}

/// See the module's head.
pub(crate) struct Keyring {
    /// At least one.
    keys: Vec<MasterKey>,
    encryption: EncryptionChoice,
    uuid: [u8; 16],
    block_bytes: usize,
    /// Files that were made.
    made: AtomicU64,
    files: RwLock<Files>,
}

#[derive(Default)]
struct Files {
    known: HashMap<Ino, KnownFile>,
    /// With so many known those that the image says are forgotten: twice as many as it did not
    /// say of the last time, so that who makes many files does not look through all for each.
    known_max: usize,
    /// Whose contexts a commit is about to put on the image.
    taken: Vec<Ino>,
    /// The policies that were said not to be followed.
    told: HashSet<[u8; 16]>,
}

impl Keyring {
    /// Of a file system with this UUID, and at least one key; directories that come to be encrypted
    /// get the first one, and these modes.
    pub fn new(
        keys: &[MasterKey],
        encryption: EncryptionChoice,
        uuid: [u8; 16],
        block_bytes: usize,
    ) -> Keyring {
        Keyring {
            keys: keys.to_vec(),
            encryption,
            uuid,
            block_bytes,
            made: AtomicU64::new(0),
            files: RwLock::new(&KEYRING, Files::default()),
        }
    }

    /// What is known of a file.
    pub fn known(&self, ino: Ino) -> Option<KnownFile> {
        self.files.read().known.get(&ino).cloned()
    }

    /// Notes what is known of a file now. What the image says does not take the place of what it
    /// is to say.
    pub fn note(&self, ino: Ino, file: KnownFile) {
        let mut files = self.files.write();
        let files = &mut *files;
        if files.known.len() >= files.known_max.max(FILES_MAX) {
            (files.known).retain(|_, file| file.presence != Presence::OnImage);
            files.known_max = 2 * files.known.len();
        }
        match file.presence {
            Presence::OnImage => drop(files.known.entry(ino).or_insert(file)),
            _ => drop(files.known.insert(ino, file)),
        }
    }

    /// The context of a file that comes to be, to be put on the image.
    pub fn take_new(&self, ino: Ino) -> Option<Context> {
        let mut files = self.files.write();
        let files = &mut *files;
        let is_new = |file: &&mut KnownFile| file.presence == Presence::New;
        let file = files.known.get_mut(&ino).filter(is_new)?;
        let context = file.context?;
        file.presence = Presence::Taken;
        files.taken.push(ino);
        Some(context)
    }

    /// A commit has put on the image, or in the buffers before it, these files, which are new, and
    /// all contexts that were taken for it.
    pub fn settle(&self, created: impl Iterator<Item = Ino>) {
        let mut files = self.files.write();
        let files = &mut *files;
        for ino in std::mem::take(&mut files.taken) {
            if let Some(file) = files.known.get_mut(&ino)
                && file.presence == Presence::Taken
            {
                file.presence = Presence::OnImage;
            }
        }
        for ino in created {
            // A directory may have come to be encrypted since.
            if let Some(file) = files.known.get_mut(&ino)
                && file.context.is_none()
            {
                file.presence = Presence::OnImage;
            }
        }
    }

    /// A nonce for a new file that is the same when the same is done again: for images that are
    /// made so. Nonces are no secrets, but no two files shall have the same.
    pub fn repeatable_nonce(&self, ino: Ino, generation: u32) -> [u8; 16] {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let numbers = [ino.0, u64::from(generation), number];
        self.keys[0].nonce(&self.uuid, &numbers)
    }

    /// The policy of directories that come to be encrypted, if names can be padded so.
    pub fn new_policy(&self, padding_bytes: usize) -> Option<Policy> {
        let policy = Policy::new(self.keys[0].identifier(), padding_bytes)?;
        Some(policy.with(self.encryption.get()))
    }

    /// How long an encrypted target can be: it has a block, which ends in a NUL.
    pub fn target_max(&self) -> usize {
        self.block_bytes.min(libc::PATH_MAX as usize) - TARGET_HEADER_SIZE - 1
    }

    /// A link's target as it is stored: its length, and what it is encrypted.
    pub fn stored_target(&self, cipher: &FileCipher, target: &[u8]) -> Option<Vec<u8>> {
        let text = cipher.names()?.encrypt(target, self.target_max())?;
        let length = u16::try_from(text.len()).ok()?;
        Some([&length.to_le_bytes(), &text[..]].concat())
    }

    /// Forgets a file whose number is free.
    pub fn forget(&self, ino: Ino) {
        self.files.write().known.remove(&ino);
    }

    /// What the policy of a context allows; what it does not is told, once for each key.
    pub fn protection(&self, context: &Context, ino: u32, is_regular: bool) -> Protection {
        let Context::Current { policy, nonce } = context else {
            return Protection::Locked;
        };
        let identifier = policy.key_identifier;
        let key = self.keys.iter().find(|key| key.identifier() == identifier);
        let made = key.map(|key| self.cipher(key, (policy, nonce), ino, is_regular));
        let reason = match made {
            Some(Ok(cipher)) => return Protection::Open(Arc::new(cipher)),
            Some(Err(why)) => why.to_string(),
            None => format!("none of the keys is {}", hex(&identifier)),
        };
        if self.files.write().told.insert(identifier) {
            log::warn!("inode {ino}: stays encrypted: {reason}");
        }
        Protection::Locked
    }

    fn cipher(
        &self,
        key: &MasterKey,
        (policy, nonce): (&Policy, &[u8; 16]),
        ino: u32,
        is_regular: bool,
    ) -> Result<FileCipher, Why> {
        let file = FileIdentity {
            policy,
            nonce,
            ino,
            uuid: &self.uuid,
        };
        Ok(match is_regular {
            true => {
                let cipher = ContentCipher::new(key, &file, self.block_bytes)?;
                FileCipher::Content(Box::new(cipher))
            }
            false => FileCipher::Names(Box::new(NameCipher::new(key, &file)?)),
        })
    }
}

/// Bytes as people write identifiers of keys.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
