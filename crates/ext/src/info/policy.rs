//! How a file of an image is encrypted: its policy, and the key that it asks for.

use std::fmt;

use finefs_ext_disk::fscrypt::Context;
use finefs_namespace::{Error, Ino, Result, Store};
use serde::Serialize;

use crate::crypt::hex;
use crate::load::{checked, encryption};
use crate::store::ExtStore;

/// The policy of a file; prints as text, and is serialised for scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyInfo {
    /// 1 or 2.
    pub version: u8,
    /// What encrypts contents (`FSCRYPT_MODE_*`).
    pub contents_mode: u8,
    /// What encrypts names and targets of links.
    pub names_mode: u8,
    /// `FSCRYPT_POLICY_FLAG*`.
    pub flags: u8,
    /// The unit that is encrypted, where it is not the block.
    pub data_unit_bytes: Option<u64>,
    /// The identifier of the master key, of version 1 its descriptor.
    pub key: String,
}

impl PolicyInfo {
    /// That of what is at a path; `None` for what is not encrypted. Below a directory without its
    /// key names are as they are shown then.
    ///
    /// # Errors
    /// `NotFound`, and damage.
    pub fn of(store: &ExtStore, path: &[u8]) -> Result<Option<PolicyInfo>> {
        let names = path.split(|byte| *byte == b'/');
        let mut ino = Ino(u64::from(finefs_ext_disk::Ino::ROOT.0));
        for name in names.filter(|name| !name.is_empty()) {
            let directory = store.load_directory(ino)?;
            let named = directory.entries.iter().find(|entry| entry.name == name);
            ino = named.ok_or(Error::NotFound)?.ino;
        }
        let (inode, _) = checked::inode(store.state(), ino)?;
        let context = encryption::context_of(store.state(), ino, &inode)?;
        Ok(context.map(|context| PolicyInfo::from(&context)))
    }

    /// The bytes that names are padded to.
    pub fn padding_bytes(&self) -> u32 {
        4 << (self.flags & 3)
    }
}

impl From<&Context> for PolicyInfo {
    fn from(context: &Context) -> PolicyInfo {
        match context {
            Context::Old { policy } => {
                let [contents_mode, names_mode, flags, key @ ..] = policy;
                PolicyInfo {
                    version: 1,
                    contents_mode: *contents_mode,
                    names_mode: *names_mode,
                    flags: *flags,
                    data_unit_bytes: None,
                    key: hex(key),
                }
            }
            Context::Current { policy, .. } => PolicyInfo {
                version: 2,
                contents_mode: policy.contents_mode,
                names_mode: policy.names_mode,
                flags: policy.flags,
                data_unit_bytes: match policy.log2_unit_bytes {
                    0 => None,
                    log2 => 1_u64.checked_shl(u32::from(log2)),
                },
                key: hex(&policy.key_identifier),
            },
        }
    }
}

/// The name of a mode in Linux `include/uapi/linux/fscrypt.h`.
fn mode_name(mode: u8) -> &'static str {
    match mode {
        1 => "AES-256-XTS",
        4 => "AES-256-CTS",
        5 => "AES-128-CBC-ESSIV",
        6 => "AES-128-CTS",
        7 => "SM4-XTS",
        8 => "SM4-CTS",
        9 => "Adiantum",
        10 => "AES-256-HCTR2",
        _ => "unknown",
    }
}

/// The flags beside the padding.
const FLAGS: [(u8, &str); 3] = [
    (0x04, "DIRECT_KEY"),
    (0x08, "IV_INO_LBLK_64"),
    (0x10, "IV_INO_LBLK_32"),
];

impl fmt::Display for PolicyInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |mode| format!("{} ({mode})", mode_name(mode));
        let set = FLAGS.iter().filter(|(flag, _)| self.flags & flag != 0);
        let set: String = set.map(|(_, name)| format!(", {name}")).collect();
        writeln!(f, "policy      version {}", self.version)?;
        writeln!(f, "contents    {}", named(self.contents_mode))?;
        writeln!(f, "names       {}", named(self.names_mode))?;
        let padding = self.padding_bytes();
        writeln!(f, "flags       {:#04x}: padding {padding}{set}", self.flags)?;
        if let Some(bytes) = self.data_unit_bytes {
            writeln!(f, "data unit   {bytes} bytes")?;
        }
        writeln!(f, "key         {}", self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use finefs_ext_disk::fscrypt::Policy;

    #[test]
    fn policies_are_told() {
        let policy = Policy::new([0xab; 16], 32).expect("a padding");
        let policy = Policy {
            flags: policy.flags | 0x08,
            log2_unit_bytes: 9,
            ..policy
        };
        let nonce = [1; 16];
        let told = PolicyInfo::from(&Context::Current { policy, nonce }).to_string();
        let expected = "policy      version 2\n\
            contents    AES-256-XTS (1)\n\
            names       AES-256-CTS (4)\n\
            flags       0x0b: padding 32, IV_INO_LBLK_64\n\
            data unit   512 bytes\n\
            key         abababababababababababababababab\n";
        assert_eq!(told, expected);
        let policy = [5, 6, 1, 1, 2, 3, 4, 5, 6, 7, 8];
        let old = PolicyInfo::from(&Context::Old { policy });
        assert_eq!((old.version, &*old.key), (1, "0102030405060708"));
        assert!(old.to_string().contains("AES-128-CBC-ESSIV (5)"));
    }
}
