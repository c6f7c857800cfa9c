//! A message of the kernel, taken apart.
//!
//! A request is a head, a structure that belongs to the operation, and a rest of names or data.
//! /dev/fuse gives the last two in one piece, a ring's entry apart: so [`parse`] takes them apart,
//! and [`fixed_length`] says where one piece is to be cut.

use finefs_namespace::SyncScope;
use zerocopy::FromBytes;

use crate::abi::*;

/// A request as it came: its head, its structure, and the rest.
pub(crate) struct Message<'a> {
    pub header: InHeader,
    pub fixed: &'a [u8],
    pub rest: &'a [u8],
}

/// An operation and what it needs. Names hold no NUL and are not empty.
#[derive(Debug)]
pub(crate) enum Operation<'a> {
    Lookup {
        name: &'a [u8],
    },
    Getattr,
    Setattr(SetattrIn),
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod {
        fields: MknodIn,
        name: &'a [u8],
    },
    Mkdir {
        fields: MkdirIn,
        name: &'a [u8],
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename {
        new_parent: u64,
        flags: u32,
        name: &'a [u8],
        new_name: &'a [u8],
    },
    Link {
        old_node: u64,
        name: &'a [u8],
    },
    Read(ReadIn),
    Write {
        fields: WriteIn,
        data: &'a [u8],
    },
    Statfs,
    /// Only files that were made without a name are ever released (the rest is never opened).
    Release,
    Fsync {
        scope: SyncScope,
    },
    Setxattr {
        flags: u32,
        /// An access ACL takes the set-gid bit away; `None` where the kernel does not tell.
        kills_setgid: Option<bool>,
        name: &'a [u8],
        value: &'a [u8],
    },
    Getxattr {
        size: u32,
        name: &'a [u8],
    },
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: &'a [u8],
    },
    Readdir(ReadIn),
    ReaddirPlus(ReadIn),
    Ioctl {
        command: u32,
        input: &'a [u8],
    },
    Fallocate(FallocateIn),
    Lseek(LseekIn),
    CopyFileRange {
        fields: CopyFileRangeIn,
        /// The answer has 64 bits for the length.
        is_long: bool,
    },
    Syncfs,
    Tmpfile(CreateIn),
    Statx,
    Access {
        mask: u32,
    },
    Destroy,
    /// Not known, or refused for good; see the crate's head.
    Unsupported,
}

impl Operation<'_> {
    /// What the log calls it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Operation::Lookup { .. } => "lookup",
            Operation::Getattr | Operation::Statx => "getattr",
            Operation::Setattr(_) => "setattr",
            Operation::Readlink => "readlink",
            Operation::Symlink { .. } => "symlink",
            Operation::Mknod { .. } => "mknod",
            Operation::Mkdir { .. } => "mkdir",
            Operation::Unlink { .. } => "unlink",
            Operation::Rmdir { .. } => "rmdir",
            Operation::Rename { .. } => "rename",
            Operation::Link { .. } => "link",
            Operation::Read(_) => "read",
            Operation::Write { .. } => "write",
            Operation::Statfs => "statfs",
            Operation::Release => "release",
            Operation::Fsync { .. } => "fsync",
            Operation::Setxattr { .. } => "setxattr",
            Operation::Getxattr { .. } => "getxattr",
            Operation::Listxattr { .. } => "listxattr",
            Operation::Removexattr { .. } => "removexattr",
            Operation::Readdir(_) | Operation::ReaddirPlus(_) => "readdir",
            Operation::Ioctl { .. } => "ioctl",
            Operation::Fallocate(_) => "fallocate",
            Operation::Lseek(_) => "lseek",
            Operation::CopyFileRange { .. } => "copy_file_range",
            Operation::Syncfs => "syncfs",
            Operation::Tmpfile(_) => "tmpfile",
            Operation::Access { .. } => "access",
            Operation::Destroy => "destroy",
            Operation::Unsupported => "request",
        }
    }
}

/// The request cannot be understood; it is answered with EINVAL.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// How long the structure of an operation is, in bytes; of SETXATTR the part that every kernel
/// sends.
pub(crate) fn fixed_length(code: u32) -> usize {
    match code {
        opcode::GETATTR => 16,
        opcode::SETATTR => size_of::<SetattrIn>(),
        opcode::MKNOD => size_of::<MknodIn>(),
        opcode::MKDIR => size_of::<MkdirIn>(),
        opcode::RENAME => size_of::<RenameIn>(),
        opcode::RENAME2 => size_of::<Rename2In>(),
        opcode::LINK => size_of::<LinkIn>(),
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS => size_of::<ReadIn>(),
        opcode::WRITE => size_of::<WriteIn>(),
        opcode::FSYNC | opcode::FSYNCDIR => size_of::<FsyncIn>(),
        opcode::SETXATTR => size_of::<SetxattrIn>(),
        opcode::GETXATTR | opcode::LISTXATTR => size_of::<GetxattrIn>(),
        opcode::IOCTL => size_of::<IoctlIn>(),
        opcode::FALLOCATE => size_of::<FallocateIn>(),
        opcode::LSEEK => size_of::<LseekIn>(),
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => size_of::<CopyFileRangeIn>(),
        opcode::TMPFILE => size_of::<CreateIn>(),
        opcode::STATX => size_of::<StatxIn>(),
        opcode::ACCESS => size_of::<AccessIn>(),
        opcode::FORGET => size_of::<ForgetIn>(),
        opcode::BATCH_FORGET => size_of::<BatchForgetIn>(),
        opcode::INIT => size_of::<InitIn>(),
        _ => 0,
    }
}

/// Understands an operation from its structure and the rest. Whether SETXATTR has its longer
/// structure was agreed on.
pub(crate) fn parse<'a>(
    code: u32,
    fixed: &[u8],
    rest: &'a [u8],
    has_setxattr_flags: bool,
) -> Result<Operation<'a>, Malformed> {
    Ok(match code {
        opcode::LOOKUP => Operation::Lookup {
            name: names::<1>(rest)?[0],
        },
        opcode::GETATTR => Operation::Getattr,
        opcode::SETATTR => Operation::Setattr(fields(fixed)?),
        opcode::READLINK => Operation::Readlink,
        opcode::SYMLINK => {
            let [name, target] = names(rest)?;
            Operation::Symlink { name, target }
        }
        opcode::MKNOD => Operation::Mknod {
            fields: fields(fixed)?,
            name: names::<1>(rest)?[0],
        },
        opcode::MKDIR => Operation::Mkdir {
            fields: fields(fixed)?,
            name: names::<1>(rest)?[0],
        },
        opcode::UNLINK => Operation::Unlink {
            name: names::<1>(rest)?[0],
        },
        opcode::RMDIR => Operation::Rmdir {
            name: names::<1>(rest)?[0],
        },
        opcode::RENAME => {
            let RenameIn { new_parent } = fields(fixed)?;
            let [name, new_name] = names(rest)?;
            Operation::Rename {
                new_parent,
                flags: 0,
                name,
                new_name,
            }
        }
        opcode::RENAME2 => {
            let Rename2In {
                new_parent, flags, ..
            } = fields(fixed)?;
            let [name, new_name] = names(rest)?;
            Operation::Rename {
                new_parent,
                flags,
                name,
                new_name,
            }
        }
        opcode::LINK => {
            let LinkIn { old_node } = fields(fixed)?;
            Operation::Link {
                old_node,
                name: names::<1>(rest)?[0],
            }
        }
        opcode::READ => Operation::Read(fields(fixed)?),
        opcode::WRITE => {
            let fields: WriteIn = fields(fixed)?;
            let data = rest.get(..fields.size as usize).ok_or(Malformed)?;
            Operation::Write { fields, data }
        }
        opcode::STATFS => Operation::Statfs,
        opcode::RELEASE => Operation::Release,
        opcode::FSYNC | opcode::FSYNCDIR => {
            let FsyncIn { flags, .. } = fields(fixed)?;
            Operation::Fsync {
                scope: match flags & FSYNC_DATA_ONLY {
                    0 => SyncScope::All,
                    _ => SyncScope::Data,
                },
            }
        }
        opcode::SETXATTR => {
            let SetxattrIn { size, flags } = fields(fixed)?;
            let (kills_setgid, rest) = match has_setxattr_flags {
                true => kills_setgid(fixed, rest).map(|(kills, rest)| (Some(kills), rest))?,
                false => (None, rest),
            };
            let (name, rest) = name(rest)?;
            let value = rest.get(..size as usize).ok_or(Malformed)?;
            Operation::Setxattr {
                flags,
                kills_setgid,
                name,
                value,
            }
        }
        opcode::GETXATTR => {
            let GetxattrIn { size, .. } = fields(fixed)?;
            Operation::Getxattr {
                size,
                name: names::<1>(rest)?[0],
            }
        }
        opcode::LISTXATTR => {
            let GetxattrIn { size, .. } = fields(fixed)?;
            Operation::Listxattr { size }
        }
        opcode::REMOVEXATTR => Operation::Removexattr {
            name: names::<1>(rest)?[0],
        },
        opcode::READDIR => Operation::Readdir(fields(fixed)?),
        opcode::READDIRPLUS => Operation::ReaddirPlus(fields(fixed)?),
        opcode::IOCTL => {
            let IoctlIn {
                command, in_size, ..
            } = fields(fixed)?;
            let input = rest.get(..in_size as usize).ok_or(Malformed)?;
            Operation::Ioctl { command, input }
        }
        opcode::FALLOCATE => Operation::Fallocate(fields(fixed)?),
        opcode::LSEEK => Operation::Lseek(fields(fixed)?),
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => Operation::CopyFileRange {
            fields: fields(fixed)?,
            is_long: code == opcode::COPY_FILE_RANGE_64,
        },
        opcode::SYNCFS => Operation::Syncfs,
        opcode::TMPFILE => Operation::Tmpfile(fields(fixed)?),
        opcode::STATX => Operation::Statx,
        opcode::ACCESS => {
            let AccessIn { mask, .. } = fields(fixed)?;
            Operation::Access { mask }
        }
        opcode::DESTROY => Operation::Destroy,
        _ => Operation::Unsupported,
    })
}

/// The references that a FORGET or BATCH_FORGET gives back, as (node, count); `None` for any other
/// operation. These two alone are never answered.
pub(crate) fn forgets<'a>(
    code: u32,
    node: u64,
    fixed: &[u8],
    rest: &'a [u8],
) -> Option<impl Iterator<Item = (u64, u64)> + 'a> {
    let (single, list) = match code {
        opcode::FORGET => {
            let count = fields::<ForgetIn>(fixed).map_or(0, |forget| forget.count);
            (Some((node, count)), &[][..])
        }
        opcode::BATCH_FORGET => {
            let count = fields::<BatchForgetIn>(fixed).map_or(0, |batch| batch.count);
            let length = (count as usize).saturating_mul(size_of::<ForgetOne>());
            (None, &rest[..length.min(rest.len())])
        }
        _ => return None,
    };
    let many = list
        .chunks_exact(size_of::<ForgetOne>())
        .filter_map(|one| ForgetOne::read_from_bytes(one).ok())
        .map(|one| (one.node, one.count));
    Some(single.into_iter().chain(many))
}

/// What the second half of SETXATTR's longer structure says, and what follows it. A ring's entry
/// has all of the structure in `fixed`; what came in one piece was cut after the first half, see
/// [`fixed_length`].
fn kills_setgid<'a>(fixed: &[u8], rest: &'a [u8]) -> Result<(bool, &'a [u8]), Malformed> {
    let first = size_of::<SetxattrIn>();
    let second = size_of::<SetxattrExtIn>();
    let (bytes, rest) = match fixed.get(first..first + second) {
        Some(bytes) => (bytes, rest),
        None => rest.split_at_checked(second).ok_or(Malformed)?,
    };
    let SetxattrExtIn { setxattr_flags, .. } = fields(bytes)?;
    Ok((setxattr_flags & SETXATTR_ACL_KILL_SGID != 0, rest))
}

/// The structure at the beginning of `bytes`.
pub(crate) fn fields<T: FromBytes>(bytes: &[u8]) -> Result<T, Malformed> {
    T::read_from_prefix(bytes)
        .map(|(value, _)| value)
        .map_err(|_| Malformed)
}

/// The name at the beginning, which a NUL ends, and what follows it.
fn name(bytes: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    match bytes.iter().position(|&byte| byte == 0) {
        Some(end) if end > 0 => Ok((&bytes[..end], &bytes[end + 1..])),
        _ => Err(Malformed),
    }
}

fn names<const COUNT: usize>(mut bytes: &[u8]) -> Result<[&[u8]; COUNT], Malformed> {
    let mut found = [&[][..]; COUNT];
    for slot in &mut found {
        (*slot, bytes) = name(bytes)?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    #[test]
    fn names_end_at_their_nul() {
        let Ok(Operation::Symlink { name, target }) =
            parse(opcode::SYMLINK, &[], b"a\0/b c\0", true)
        else {
            panic!("not a symlink");
        };
        assert_eq!((name, target), (&b"a"[..], &b"/b c"[..]));
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        for code in 0..60 {
            let fixed = vec![0; fixed_length(code).saturating_sub(1)];
            let result = parse(code, &fixed, b"name without end", true);
            let has_parts = fixed_length(code) > 0 && code < opcode::INIT
                || matches!(code, opcode::LOOKUP | opcode::UNLINK | opcode::SYMLINK);
            if has_parts && code != opcode::GETATTR && code != opcode::FORGET {
                assert_eq!(result.err(), Some(Malformed), "operation {code}");
            }
        }
        for bad in [&b""[..], b"\0", b"x", b"\0x\0"] {
            assert_eq!(parse(opcode::LOOKUP, &[], bad, true).err(), Some(Malformed));
        }
    }

    #[test]
    fn a_write_has_as_much_data_as_it_says() {
        let fields = WriteIn {
            handle: 0,
            offset: 7,
            size: 3,
            write_flags: 0,
            lock_owner: 0,
            flags: 0,
            padding: 0,
        };
        let Ok(Operation::Write {
            fields: found,
            data,
        }) = parse(opcode::WRITE, fields.as_bytes(), b"abcdef", true)
        else {
            panic!("not a write");
        };
        assert_eq!((found.offset, data), (7, &b"abc"[..]));
        assert!(parse(opcode::WRITE, fields.as_bytes(), b"ab", true).is_err());
    }

    #[test]
    fn setxattr_has_the_structure_that_was_agreed_on() {
        let short = SetxattrIn { size: 1, flags: 2 };
        let (kill, keep) = ([1, 0, 0, 0, 0, 0, 0, 0], [0; 8]);
        let understood = |fixed: &[u8], rest: &[u8], has_flags| match parse(
            opcode::SETXATTR,
            fixed,
            rest,
            has_flags,
        ) {
            Ok(Operation::Setxattr {
                flags: 2,
                kills_setgid,
                name: b"n",
                value: b"v",
            }) => kills_setgid,
            other => panic!("{other:?}"),
        };
        let short = short.as_bytes();
        assert_eq!(understood(short, b"n\0v", false), None);
        for (second, expected) in [(kill, true), (keep, false)] {
            let rest = [&second[..], b"n\0v"].concat();
            assert_eq!(understood(short, &rest, true), Some(expected));
            // A ring's entry has room for the largest structure, and in it what an earlier request
            // left.
            let fixed = [short, &second[..], &[0xff; 16]].concat();
            assert_eq!(understood(&fixed, b"n\0v", true), Some(expected));
            assert_eq!(understood(&fixed, b"n\0v", false), None);
        }
        assert_eq!(
            parse(opcode::SETXATTR, short, b"n\0", true).err(),
            Some(Malformed)
        );
    }

    #[test]
    fn forgets_come_alone_and_in_batches() {
        let alone: Vec<_> = forgets(opcode::FORGET, 9, ForgetIn { count: 2 }.as_bytes(), &[])
            .unwrap()
            .collect();
        assert_eq!(alone, [(9, 2)]);
        let ones = [
            ForgetOne { node: 3, count: 1 },
            ForgetOne { node: 4, count: 5 },
        ];
        // A count beyond what is there is taken for what is there.
        let batch = BatchForgetIn {
            count: u32::MAX,
            dummy: 0,
        };
        let many: Vec<_> = forgets(opcode::BATCH_FORGET, 0, batch.as_bytes(), ones.as_bytes())
            .unwrap()
            .collect();
        assert_eq!(many, [(3, 1), (4, 5)]);
        assert!(forgets(opcode::LOOKUP, 1, &[], &[]).is_none());
    }
}
