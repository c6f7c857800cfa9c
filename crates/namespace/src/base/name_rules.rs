//! What a store says about names: which are equal, and which it cannot tell apart.

/// Gives the form of a name that equal ones have in common; `None` for what is no text, which
/// equals itself alone.
pub type FoldName = fn(&[u8]) -> Option<Vec<u8>>;

/// How names are compared whatever their case.
#[derive(Clone, Copy, Debug)]
pub struct Folding {
    /// The form that equal names have in common.
    pub fold: FoldName,
    /// Names that are no text are refused.
    pub is_strict: bool,
}

/// Names that the store's hash does not tell apart are one class, of which a directory can hold
/// only so many. Another one is EBUSY, as in Linux's reiserfs.
#[derive(Clone, Copy, Debug)]
pub struct NameClasses {
    /// The class of a name.
    pub class_of: fn(&[u8]) -> u32,
    /// How many names of a class a directory can hold.
    pub names_max: u32,
    /// A name of the root that the store keeps to itself.
    pub hidden_in_root: &'static [u8],
}
