//! An inode that a request uses.

use finefs_namespace::{Attributes, Ino, Namespace};

/// A reference, given back when dropped: so a file that somebody unlinks meanwhile stays until the
/// request is done with it.
pub(crate) struct Held<'n> {
    namespace: &'n Namespace,
    /// As they were when it was found.
    pub attributes: Attributes,
}

impl<'n> Held<'n> {
    /// Takes over a reference that the namespace gave with these attributes.
    pub(crate) fn new(namespace: &'n Namespace, attributes: Attributes) -> Held<'n> {
        Held {
            namespace,
            attributes,
        }
    }

    pub(crate) fn ino(&self) -> Ino {
        self.attributes.ino
    }

    /// The attributes as they are now. An inode that is held has some; those of before where it is
    /// the end of the namespace.
    pub(crate) fn now(&self) -> Attributes {
        let now = self.namespace.attributes(self.ino());
        now.unwrap_or(self.attributes)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.namespace.forget(self.ino(), 1);
    }
}
