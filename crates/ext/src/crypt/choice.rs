//! Which modes directories that come to be encrypted get.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use finefs_ext_disk::fscrypt::Encryption;

/// The modes of directories that come to be encrypted. Clones are one choice, which can be another
/// while images are open.
#[derive(Clone, Debug, Default)]
pub struct EncryptionChoice(
    /// Where it stands among all.
    Arc<AtomicUsize>,
);

impl EncryptionChoice {
    /// What holds now.
    pub fn get(&self) -> Encryption {
        let at = self.0.load(Ordering::Relaxed);
        Encryption::ALL.get(at).copied().unwrap_or_default()
    }

    /// From now on this holds.
    pub fn set(&self, encryption: Encryption) {
        let at = Encryption::ALL.iter().position(|one| *one == encryption);
        self.0.store(at.unwrap_or_default(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_are_one_choice() {
        let choice = EncryptionChoice::default();
        assert_eq!(choice.get(), Encryption::default());
        for encryption in Encryption::ALL {
            let clone = choice.clone();
            clone.set(encryption);
            assert_eq!(choice.get(), encryption);
        }
    }
}
