//! Options that images and memory have in common: those of the namespace.

/// Gives a builder with a field `namespace` the methods that set them.
macro_rules! shared_options {
    ($Options:ident) => {
        impl $Options {
            /// When reads update the access time.
            pub fn atime(mut self, policy: finefs_namespace::AtimePolicy) -> $Options {
                self.namespace.atime = policy;
                self
            }

            /// Whether reads of directories update theirs too; they do at first.
            pub fn directory_atime(mut self, notes_directories: bool) -> $Options {
                self.namespace.notes_directories = notes_directories;
                self
            }

            /// What is made gets its directory's group, as with `grpid` of ext4's mounts.
            pub fn bsd_groups(mut self, has_bsd_groups: bool) -> $Options {
                self.namespace.has_bsd_groups = has_bsd_groups;
                self
            }

            /// Whether every change of a directory is durable when it returns (`dirsync` of
            /// mount(8)).
            pub fn synchronous_directories(mut self, are_synchronous: bool) -> $Options {
                self.namespace.has_synchronous_directories = are_synchronous;
                self
            }

            /// Without ACLs the ones that there are neither count nor are they shown, and none can
            /// be set.
            pub fn acls(mut self, has_acls: bool) -> $Options {
                self.namespace.has_acls = has_acls;
                self
            }

            /// What locks the file system: a big lock or a coarse one, for comparison with the fine
            /// ones.
            #[cfg(feature = "locking-schemes")]
            pub fn locking(mut self, scheme: finefs_namespace::LockingScheme) -> $Options {
                self.namespace.locking = scheme;
                self
            }

            /// Changes wait while it is frozen; else they fail (EAGAIN), to be tried again after
            /// the thaw.
            pub fn waits_for_thaw(mut self, waits: bool) -> $Options {
                self.namespace.waits_for_thaw = waits;
                self
            }
        }
    };
}

pub(crate) use shared_options;
