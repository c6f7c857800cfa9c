//! The modes of encryption that are known, which of them go together, and what each asks for.
//!
//! References: Linux `fs/crypto/policy.c` (which policies are allowed), `fs/crypto/keysetup.c`
//! (lengths of keys and IVs).

use aes::cipher::InvalidLength;
use aes::{Aes128, Aes256};
use finefs_ext_disk::fscrypt::{self, Policy, Scheme};

use super::adiantum::Adiantum;
use super::cbc::{CbcEssiv, Cts};
use super::hctr2::Hctr2;
use super::unit::UnitCipher;
use super::xts::Xts;
use crate::crypt::Why;

/// The longest key of a mode.
pub(super) const KEY_BYTES_MAX: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    Aes256Xts,
    Aes256Cts,
    Aes128CbcEssiv,
    Aes128Cts,
    Adiantum,
    Aes256Hctr2,
}

/// What a policy asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Modes {
    pub contents: Mode,
    pub names: Mode,
}

/// The modes for contents and for names that go together. SM4 is left out.
const PAIRS: [(Mode, Mode); 4] = [
    (Mode::Aes256Xts, Mode::Aes256Cts),
    (Mode::Aes256Xts, Mode::Aes256Hctr2),
    (Mode::Aes128CbcEssiv, Mode::Aes128Cts),
    (Mode::Adiantum, Mode::Adiantum),
];

impl Modes {
    /// Those of a policy, and how its keys are made, if that goes together.
    pub fn of(policy: &Policy) -> Result<(Modes, Scheme), Why> {
        let numbers = (policy.contents_mode, policy.names_mode);
        let is_it = |pair: &&(Mode, Mode)| (pair.0.number(), pair.1.number()) == numbers;
        let Some(&(contents, names)) = PAIRS.iter().find(is_it) else {
            return Err(Why::Modes(numbers.0, numbers.1));
        };
        let scheme = policy.scheme().filter(|scheme| match scheme {
            Scheme::PerFile => true,
            Scheme::Direct => contents == names && contents.iv_has_room_for_nonce(),
            Scheme::InoLblk64 | Scheme::InoLblk32 => contents == Mode::Aes256Xts,
        });
        let scheme = scheme.ok_or(Why::Flags(policy.flags))?;
        Ok((Modes { contents, names }, scheme))
    }
}

impl Mode {
    /// Its number in policies.
    pub fn number(self) -> u8 {
        match self {
            Mode::Aes256Xts => fscrypt::MODE_AES_256_XTS,
            Mode::Aes256Cts => fscrypt::MODE_AES_256_CTS,
            Mode::Aes128CbcEssiv => fscrypt::MODE_AES_128_CBC,
            Mode::Aes128Cts => fscrypt::MODE_AES_128_CTS,
            Mode::Adiantum => fscrypt::MODE_ADIANTUM,
            Mode::Aes256Hctr2 => fscrypt::MODE_AES_256_HCTR2,
        }
    }

    /// How long its own key is.
    pub fn key_bytes(self) -> usize {
        match self {
            Mode::Aes256Xts => KEY_BYTES_MAX,
            Mode::Aes256Cts | Mode::Adiantum | Mode::Aes256Hctr2 => 32,
            Mode::Aes128CbcEssiv | Mode::Aes128Cts => 16,
        }
    }

    /// A shorter master key would be weaker than the mode.
    pub fn strength_bytes(self) -> usize {
        self.key_bytes().min(32)
    }

    fn iv_has_room_for_nonce(self) -> bool {
        matches!(self, Mode::Adiantum | Mode::Aes256Hctr2)
    }

    /// Its cipher with a key of its length.
    pub fn cipher(self, key: &[u8]) -> Result<Box<dyn UnitCipher>, InvalidLength> {
        Ok(match self {
            Mode::Aes256Xts => Box::new(Xts::new(key)?),
            Mode::Aes256Cts => Box::new(Cts::<Aes256>::new(key)?),
            Mode::Aes128CbcEssiv => Box::new(CbcEssiv::new(key)?),
            Mode::Aes128Cts => Box::new(Cts::<Aes128>::new(key)?),
            Mode::Adiantum => Box::new(Adiantum::new(key)?),
            Mode::Aes256Hctr2 => Box::new(Hctr2::new(key)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that Linux allows, but for SM4 (7 and 8).
    #[test]
    fn policies_are_allowed_as_by_the_kernel() {
        let scheme = |modes: (u8, u8), flags| {
            let policy = Policy::new([0; 16], 4).expect("a padding");
            let policy = Policy {
                contents_mode: modes.0,
                names_mode: modes.1,
                flags,
                ..policy
            };
            Modes::of(&policy).map(|(_, scheme)| scheme)
        };
        let (per_file, direct) = (Ok(Scheme::PerFile), Ok(Scheme::Direct));
        for modes in [(1, 4), (1, 10), (5, 6), (9, 9)] {
            assert_eq!(scheme(modes, 3), per_file);
            assert_eq!(scheme(modes, 0x20), Err(Why::Flags(0x20)));
            let expected = if modes == (9, 9) {
                direct
            } else {
                Err(Why::Flags(4))
            };
            assert_eq!(scheme(modes, 4), expected);
            for (flags, ino) in [(0x08, Scheme::InoLblk64), (0x10, Scheme::InoLblk32)] {
                let is_xts = modes.0 == 1;
                let expected = is_xts.then_some(ino).ok_or(Why::Flags(flags));
                assert_eq!(scheme(modes, flags), expected);
                assert_eq!(scheme(modes, flags | 4), Err(Why::Flags(flags | 4)));
            }
        }
        for modes in [
            (7, 8),
            (10, 10),
            (9, 10),
            (1, 9),
            (1, 6),
            (5, 4),
            (4, 1),
            (0, 0),
        ] {
            assert_eq!(scheme(modes, 0), Err(Why::Modes(modes.0, modes.1)));
        }
    }
}
