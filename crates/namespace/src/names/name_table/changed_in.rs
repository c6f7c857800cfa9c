//! The stamp of a name: when it was last changed.

/// The generation that a name was changed in, as far as a node has room for it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct ChangedIn(u16);

impl ChangedIn {
    /// The store has the name as it is.
    pub const STORED: ChangedIn = ChangedIn(0);
    const SET: u16 = 1 << 15;

    /// Of a generation.
    pub fn of(generation: u64) -> ChangedIn {
        ChangedIn(generation as u16 | ChangedIn::SET)
    }

    /// True when the change is surely on the store, once that has this generation. (Of a name that
    /// was changed very long ago it may be false.)
    pub fn is_stored(self, committed: u64) -> bool {
        let ahead = self.0.wrapping_sub(committed as u16) & (ChangedIn::SET - 1);
        self == ChangedIn::STORED || !(1..ChangedIn::SET / 2).contains(&ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_tells_whether_its_generation_is_stored() {
        for generation in [1_u64, 7, 0x7fff, 0x8000, 0x1_0000, 0x12_3456] {
            let stamp = ChangedIn::of(generation);
            assert!(stamp.is_stored(generation) && stamp.is_stored(generation + 100));
            assert!(
                !stamp.is_stored(generation - 1) && generation < 4
                    || !stamp.is_stored(generation.saturating_sub(3))
            );
        }
        assert!(ChangedIn::STORED.is_stored(0) && ChangedIn::STORED.is_stored(u64::MAX));
    }
}
