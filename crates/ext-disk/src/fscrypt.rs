//! How a file is encrypted: the context that it has as a hidden extended attribute.
//!
//! A context is the policy of its directory, and a nonce of its own. The policy of version 2 names
//! the master key by an identifier that follows from it. Version 1 names it by any eight bytes; it
//! is only recognised here.
//!
//! Reference: Linux `Documentation/filesystems/fscrypt.rst`, `include/uapi/linux/fscrypt.h`,
//! `fs/crypto/fscrypt_private.h`.

use crate::bytes::get_array;
use crate::error::{Incompatible, Result, need};

/// The name of the attribute ([`NameIndex::ENCRYPTION`](crate::xattr::NameIndex::ENCRYPTION)).
pub const XATTR_NAME: &[u8] = b"c";
/// AES-256-XTS, for contents.
pub const MODE_AES_256_XTS: u8 = 1;
/// AES-256-CBC with ciphertext stealing, for names and targets of links.
pub const MODE_AES_256_CTS: u8 = 4;
/// AES-128-CBC with encrypted IVs (ESSIV), for contents.
pub const MODE_AES_128_CBC: u8 = 5;
/// AES-128-CBC with ciphertext stealing, for names and targets of links.
pub const MODE_AES_128_CTS: u8 = 6;
/// Adiantum, for both.
pub const MODE_ADIANTUM: u8 = 9;
/// AES-256-HCTR2, for names and targets of links.
pub const MODE_AES_256_HCTR2: u8 = 10;
/// The shortest encrypted name: one block of the cipher.
pub const NAME_MIN: usize = 16;
/// Before the encrypted target of a link its length is stored.
pub const TARGET_HEADER_SIZE: usize = 2;

const SIZE_V1: usize = 28;
const SIZE_V2: usize = 40;
const PADDING_MASK: u8 = 3;

/// How the IVs and keys of files are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// A key for each file, of its nonce.
    PerFile,
    /// A key for each mode; IVs hold the file's nonce (`DIRECT_KEY`).
    Direct,
    /// A key for each mode and file system; IVs hold the inode's number (`IV_INO_LBLK_64`).
    InoLblk64,
    /// The same with 32 bits of a hash of the number (`IV_INO_LBLK_32`).
    InoLblk32,
}

/// Modes for contents and for names that go together, as policies of version 2 have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// AES-256-XTS and AES-256-CTS.
    #[default]
    Aes256,
    /// AES-256-XTS and AES-256-HCTR2: names that begin alike do not look alike.
    Aes256Hctr2,
    /// AES-128-CBC with encrypted IVs (ESSIV) and AES-128-CTS, for weak devices that have AES.
    Aes128,
    /// Adiantum for both, for processors without instructions for AES.
    Adiantum,
}

impl Encryption {
    /// All of them.
    pub const ALL: [Encryption; 4] = [
        Encryption::Aes256,
        Encryption::Aes256Hctr2,
        Encryption::Aes128,
        Encryption::Adiantum,
    ];

    /// Its name for users.
    pub fn name(self) -> &'static str {
        match self {
            Encryption::Aes256 => "aes-256",
            Encryption::Aes256Hctr2 => "aes-256-hctr2",
            Encryption::Aes128 => "aes-128",
            Encryption::Adiantum => "adiantum",
        }
    }

    /// The modes for contents and for names.
    pub fn modes(self) -> (u8, u8) {
        match self {
            Encryption::Aes256 => (MODE_AES_256_XTS, MODE_AES_256_CTS),
            Encryption::Aes256Hctr2 => (MODE_AES_256_XTS, MODE_AES_256_HCTR2),
            Encryption::Aes128 => (MODE_AES_128_CBC, MODE_AES_128_CTS),
            Encryption::Adiantum => (MODE_ADIANTUM, MODE_ADIANTUM),
        }
    }
}

/// A policy of version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What contents are encrypted with.
    pub contents_mode: u8,
    /// What names are encrypted with.
    pub names_mode: u8,
    /// Flags as stored.
    pub flags: u8,
    /// The unit that is encrypted, as the power of two of its bytes; 0 for a block.
    pub log2_unit_bytes: u8,
    /// Which master key.
    pub key_identifier: [u8; 16],
}

impl Policy {
    /// The default: AES-256-XTS for contents, AES-256-CTS for names, names padded to so many
    /// bytes: 4, 8, 16 or 32.
    pub fn new(key_identifier: [u8; 16], padding_bytes: usize) -> Option<Policy> {
        let flags = [4, 8, 16, 32].iter().position(|p| *p == padding_bytes)?;
        Some(Policy {
            contents_mode: MODE_AES_256_XTS,
            names_mode: MODE_AES_256_CTS,
            flags: flags as u8,
            log2_unit_bytes: 0,
            key_identifier,
        })
    }

    /// The same with these modes.
    pub fn with(self, encryption: Encryption) -> Policy {
        let (contents_mode, names_mode) = encryption.modes();
        Policy {
            contents_mode,
            names_mode,
            ..self
        }
    }

    /// How keys and IVs are made; `None` for a way that is not known.
    pub fn scheme(&self) -> Option<Scheme> {
        match self.flags & !PADDING_MASK {
            0 => Some(Scheme::PerFile),
            0x04 => Some(Scheme::Direct),
            0x08 => Some(Scheme::InoLblk64),
            0x10 => Some(Scheme::InoLblk32),
            _ => None,
        }
    }

    /// How long the encrypted form of a name or target is, of which `max` bytes can be stored;
    /// `None` where it does not fit.
    pub fn stored_length(&self, length: usize, max: usize) -> Option<usize> {
        let padding = 4 << (self.flags & PADDING_MASK);
        let padded = length.max(NAME_MIN).next_multiple_of(padding);
        (length <= max).then(|| padded.min(max))
    }
}

/// What a file's context says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// Version 1.
    Old {
        /// The bytes that name its key, and modes and flags.
        policy: [u8; 11],
    },
    /// Version 2.
    Current {
        /// The policy.
        policy: Policy,
        /// What sets the file's keys apart.
        nonce: [u8; 16],
    },
}

impl Context {
    /// Reads a context.
    pub fn parse(bytes: &[u8]) -> Result<Context> {
        match bytes.first() {
            Some(1) => {
                need("encryption context", SIZE_V1, bytes.len())?;
                let policy = get_array(bytes, 1);
                Ok(Context::Old { policy })
            }
            Some(2) => {
                need("encryption context", SIZE_V2, bytes.len())?;
                let [_, contents_mode, names_mode, flags, log2_unit_bytes] = get_array(bytes, 0);
                let policy = Policy {
                    contents_mode,
                    names_mode,
                    flags,
                    log2_unit_bytes,
                    key_identifier: get_array(bytes, 8),
                };
                let nonce = get_array(bytes, 24);
                Ok(Context::Current { policy, nonce })
            }
            Some(version) => Err(Incompatible::Encryption(*version).into()),
            None => Err(need("encryption context", SIZE_V2, 0).unwrap_err()),
        }
    }

    /// The context as it is stored; `None` for version 1, which nobody writes.
    pub fn bytes(&self) -> Option<[u8; SIZE_V2]> {
        let Context::Current { policy, nonce } = self else {
            return None;
        };
        let mut bytes = [0; SIZE_V2];
        bytes[0] = 2;
        bytes[1] = policy.contents_mode;
        bytes[2] = policy.names_mode;
        bytes[3] = policy.flags;
        bytes[4] = policy.log2_unit_bytes;
        bytes[8..24].copy_from_slice(&policy.key_identifier);
        bytes[24..].copy_from_slice(nonce);
        Some(bytes)
    }

    /// Whether another file has the same policy.
    pub fn has_policy_of(&self, other: &Context) -> bool {
        match (self, other) {
            (Context::Old { policy: a }, Context::Old { policy: b }) => a == b,
            (Context::Current { policy: a, .. }, Context::Current { policy: b, .. }) => a == b,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_read_as_they_are_written() {
        let policy = Policy::new([7; 16], 32).expect("a padding");
        let nonce = [9; 16];
        let context = Context::Current { policy, nonce };
        let bytes = context.bytes().expect("version 2");
        assert_eq!(bytes[..8], [2, 1, 4, 3, 0, 0, 0, 0]);
        assert_eq!(Context::parse(&bytes), Ok(context));
        assert!(Context::parse(&bytes[..39]).is_err());
        assert!(Context::parse(&[]).is_err());
        assert!(Context::parse(&[3; 40]).is_err());
        let old = Context::parse(&[1; 28]).expect("version 1");
        assert!(old.has_policy_of(&old) && !old.has_policy_of(&context));
        assert_eq!(old.bytes(), None);
        assert_eq!(Policy::new([7; 16], 5), None);
    }

    /// Linux `include/uapi/linux/fscrypt.h`, `fscrypt_valid_enc_modes_v2()`.
    #[test]
    fn modes_are_the_kernels() {
        let policy = Policy::new([7; 16], 32).expect("a padding");
        let modes = Encryption::ALL.map(|encryption| {
            let policy = policy.with(encryption);
            (policy.contents_mode, policy.names_mode)
        });
        assert_eq!(modes, [(1, 4), (1, 10), (5, 6), (9, 9)]);
        assert_eq!(policy.with(Encryption::default()), policy);
    }

    #[test]
    fn names_are_padded() {
        let lengths = |padding| {
            let policy = Policy::new([0; 16], padding).expect("a padding");
            [1, 16, 17, 253, 255, 256].map(|length| policy.stored_length(length, 255))
        };
        let four = [Some(16), Some(16), Some(20), Some(255), Some(255), None];
        assert_eq!(lengths(4), four);
        let most = [Some(32), Some(32), Some(32), Some(255), Some(255), None];
        assert_eq!(lengths(32), most);
    }

    #[test]
    fn schemes_are_told_by_flags() {
        let scheme = |flags| {
            let policy = Policy::new([0; 16], 4).expect("a padding");
            Policy { flags, ..policy }.scheme()
        };
        assert_eq!(scheme(3), Some(Scheme::PerFile));
        assert_eq!(scheme(9), Some(Scheme::InoLblk64));
        assert_eq!(scheme(0x10), Some(Scheme::InoLblk32));
        assert_eq!(scheme(7), Some(Scheme::Direct));
        assert_eq!([scheme(0x0c), scheme(0x18), scheme(0x20)], [None; 3]);
    }
}
