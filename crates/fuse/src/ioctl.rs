//! The ioctls that a FUSE server gets to see, as Linux file systems answer them.
//!
//! The kernel passes on what its VFS does not answer itself, with arguments whose size and
//! direction the command's number tells. It asks for the flags of lsattr(1) and chattr(1) in two
//! forms, that of ext2 and that of XFS (ioctl_fs_*(2)), and reads the second before it sets either.
//!
//! | command | answer |
//! |---|---|
//! | FS_IOC_GETFLAGS, FS_IOC_SETFLAGS | the flags of an inode |
//! | FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR | those that XFS knows, and the project |
//! | FS_IOC_GETVERSION | the generation |
//! | FS_IOC_GETFSLABEL, FS_IOC_SETFSLABEL | its label |
//! | FITRIM | tells the storage below which blocks are free |
//! | FS_IOC_MEASURE_VERITY | the digest of a sealed file |
//!
//! FS_IOC_READ_VERITY_METADATA has its buffer behind a pointer, which the kernel does not follow:
//! it cannot be answered.

use finefs_namespace::types::{AccessChecks, Caller, Ino, SealParameters};
use finefs_namespace::{Error, FileFlags, Namespace, Result};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::IoctlIn;

/// The number of a command, as `linux/ioctl.h` makes it.
const fn command(direction: u32, kind: u32, number: u32, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | kind << 8 | number
}

const WRITE: u32 = 1;
const READ: u32 = 2;
const LONG: usize = size_of::<u64>();
/// The same commands from 32-bit programs.
const INT: usize = size_of::<u32>();

const GETFLAGS: u32 = command(READ, b'f' as u32, 1, LONG);
const GETFLAGS_32: u32 = command(READ, b'f' as u32, 1, INT);
const SETFLAGS: u32 = command(WRITE, b'f' as u32, 2, LONG);
const SETFLAGS_32: u32 = command(WRITE, b'f' as u32, 2, INT);
const GETVERSION: u32 = command(READ, b'v' as u32, 1, LONG);
const GETVERSION_32: u32 = command(READ, b'v' as u32, 1, INT);
/// The same as ext4 called it before.
const GETVERSION_OLD: u32 = command(READ, b'f' as u32, 3, LONG);
const FSGETXATTR: u32 = command(READ, b'X' as u32, 31, size_of::<FsXattr>());
const FSSETXATTR: u32 = command(WRITE, b'X' as u32, 32, size_of::<FsXattr>());
const GETFSLABEL: u32 = command(READ, 0x94, 49, LABEL_BYTES);
const SETFSLABEL: u32 = command(WRITE, 0x94, 50, LABEL_BYTES);
const FITRIM: u32 = command(READ | WRITE, b'X' as u32, 121, size_of::<TrimRange>());

/// `struct fsverity_digest` without its digest, for which the kernel passes on as much room as the
/// program says that it has; before Linux 6.10 it does not.
const MEASURE_VERITY: u32 = command(READ | WRITE, b'f' as u32, 134, DIGEST_HEAD);
/// FS_IOC_ENABLE_VERITY: the kernel passes salt and signature on behind the argument.
const ENABLE_VERITY: u32 = command(WRITE, b'f' as u32, 133, size_of::<EnableVerity>());
const DIGEST_HEAD: usize = size_of::<DigestHead>();

/// FS_VERITY_MAX_SALT_SIZE and FS_VERITY_MAX_SIGNATURE_SIZE
const SALT_MAX: usize = 32;
const SIGNATURE_MAX: usize = 16128;

/// FSLABEL_MAX
const LABEL_BYTES: usize = 256;

/// `struct fsxattr`
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FsXattr {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

/// `struct fsverity_digest` without its digest
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct DigestHead {
    algorithm: u16,
    size: u16,
}

/// `struct fsverity_enable_arg`
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct EnableVerity {
    version: u32,
    algorithm: u32,
    block_bytes: u32,
    salt_bytes: u32,
    salt: u64,
    signature_bytes: u32,
    reserved: u32,
    signature: u64,
    more_reserved: [u64; 11],
}

/// `struct fstrim_range`
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct TrimRange {
    start: u64,
    length: u64,
    min_length: u64,
}

impl FsXattr {
    /// The flags that it has of those that are known here.
    fn file_flags(&self) -> FileFlags {
        let set = XFS_FLAGS.iter().filter(|(bit, _)| self.flags & bit != 0);
        set.fold(FileFlags::empty(), |all, (_, flag)| all.union(*flag))
    }
}

/// The flags that XFS knows (FS_XFLAG_*).
const XFS_FLAGS: [(u32, FileFlags); 6] = [
    (0x8, FileFlags::IMMUTABLE),
    (0x10, FileFlags::APPEND_ONLY),
    (0x20, FileFlags::SYNC),
    (0x40, FileFlags::NO_ATIME),
    (0x80, FileFlags::NO_DUMP),
    (0x200, FileFlags::PROJECT_INHERIT),
];

/// Those that XFS knows besides, and ext4 does without.
const XFS_IGNORED: u32 = 0x8001_fd03;

/// The flags that GETFLAGS shows and SETFLAGS takes, though it changes not all of them
/// (EXT4_FL_USER_VISIBLE).
const VISIBLE: FileFlags = FileFlags::from_bits_retain(0x725b_dfff);

/// True for a command, with the structure of its request, that waits for the disk, or for other
/// requests.
pub(crate) fn is_slow(fixed: &[u8]) -> bool {
    IoctlIn::read_from_prefix(fixed).is_ok_and(|(fields, _)| {
        matches!(fields.command, SETFSLABEL | FITRIM) || changes_attributes(fields.command)
    })
}

/// True for a command after which a file is immutable, append-only or sealed.
pub(crate) fn protects_data(command: u32, input: &[u8]) -> bool {
    let flags = match command {
        SETFLAGS | SETFLAGS_32 => argument(input).map(FileFlags::from_bits_retain),
        FSSETXATTR => argument::<FsXattr>(input).map(|given| given.file_flags()),
        ENABLE_VERITY => return true,
        _ => return false,
    };
    flags.is_ok_and(|flags| flags.intersects(FileFlags::PRIVILEGED))
}

/// True for a command that changes attributes which the kernel keeps: the time of change.
pub(crate) fn changes_attributes(command: u32) -> bool {
    matches!(command, SETFLAGS | SETFLAGS_32 | FSSETXATTR | ENABLE_VERITY)
}

/// What a command is answered with.
pub(crate) enum Answer {
    /// This goes to the program.
    Given(Vec<u8>),
    /// The number of an error.
    Refused(i32),
}

/// Answers a command about an inode.
/// `input` is what the program gave; all belongs to `owner`, if that is shown.
pub(crate) fn serve(
    namespace: &Namespace,
    caller: &Caller,
    owner: Option<u32>,
    ino: Ino,
    command: u32,
    input: &[u8],
) -> Result<Answer> {
    let flags = || namespace.attributes(ino).map(|attributes| attributes.flags);
    Ok(Answer::Given(match command {
        // What chattr(1) reads it sets again.
        GETFLAGS | GETFLAGS_32 => (flags()? & VISIBLE).bits().to_ne_bytes().to_vec(),
        SETFLAGS | SETFLAGS_32 => {
            let given: FileFlags = FileFlags::from_bits_retain(argument(input)?);
            if !VISIBLE.contains(given) {
                return Err(Error::NotSupported);
            }
            namespace.set_flags(&checked(caller, owner)?, ino, |_| given)?;
            Vec::new()
        }
        FSGETXATTR => {
            let known = namespace.attributes(ino)?;
            let bits = XFS_FLAGS.iter();
            let bits = bits.filter(|(_, flag)| known.flags.contains(*flag));
            let found = FsXattr {
                flags: bits.fold(0, |bits, (bit, _)| bits | bit),
                project: known.project,
                ..FsXattr::default()
            };
            found.as_bytes().to_vec()
        }
        FSSETXATTR => {
            set_fsxattr(namespace, &checked(caller, owner)?, ino, argument(input)?)?;
            Vec::new()
        }
        GETVERSION | GETVERSION_32 | GETVERSION_OLD => {
            let generation = namespace.attributes(ino)?.generation;
            generation.to_ne_bytes().to_vec()
        }
        GETFSLABEL => {
            let mut label = namespace.label();
            label.resize(LABEL_BYTES, 0);
            label
        }
        SETFSLABEL => {
            let given: [u8; LABEL_BYTES] = argument(input)?;
            let end = given.iter().position(|byte| *byte == 0);
            namespace.set_label(caller, &given[..end.unwrap_or(LABEL_BYTES)])?;
            Vec::new()
        }
        FITRIM => {
            let given: TrimRange = argument(input)?;
            let end = given.start.saturating_add(given.length);
            let length = namespace.trim(caller, given.start..end, given.min_length)?;
            TrimRange { length, ..given }.as_bytes().to_vec()
        }
        ENABLE_VERITY => return sealed(namespace, &checked(caller, owner)?, ino, input),
        MEASURE_VERITY => return measured(namespace, ino, input),
        _ => return Ok(Answer::Refused(libc::ENOTTY)),
    }))
}

/// ENABLE_VERITY: its argument, the salt and the signature.
fn sealed(namespace: &Namespace, caller: &Caller, ino: Ino, input: &[u8]) -> Result<Answer> {
    let given: EnableVerity = argument(input)?;
    let is_known = given.version == 1 && given.reserved == 0 && given.more_reserved == [0; 11];
    if !is_known || !given.block_bytes.is_power_of_two() || given.block_bytes < 1024 {
        return Err(Error::Invalid);
    }
    let (salt_bytes, signature_bytes) = (given.salt_bytes as usize, given.signature_bytes as usize);
    if salt_bytes > SALT_MAX || signature_bytes > SIGNATURE_MAX {
        return Ok(Answer::Refused(libc::EMSGSIZE));
    }
    if !matches!(given.algorithm, 1 | 2) {
        return Ok(Answer::Refused(libc::ENOPKG));
    }
    let behind = input.get(size_of::<EnableVerity>()..).unwrap_or_default();
    let Some((salt, signature)) = behind.split_at_checked(salt_bytes) else {
        return Err(Error::Invalid);
    };
    let signature = signature.get(..signature_bytes).ok_or(Error::Invalid)?;
    let parameters = SealParameters {
        algorithm: given.algorithm as u16,
        block_bytes: given.block_bytes,
        salt,
        signature,
    };
    namespace.seal(caller, ino, &parameters)?;
    Ok(Answer::Given(Vec::new()))
}

/// MEASURE_VERITY: the input is what the program has room for.
fn measured(namespace: &Namespace, ino: Ino, input: &[u8]) -> Result<Answer> {
    let digest = namespace.verity_digest(ino)?;
    let room: DigestHead = argument(input)?;
    if usize::from(room.size) < digest.bytes.len() {
        return Ok(Answer::Refused(libc::EOVERFLOW));
    }
    if input.len() < DIGEST_HEAD + digest.bytes.len() {
        return Ok(Answer::Refused(libc::ENOTTY));
    }
    let head = DigestHead {
        algorithm: digest.algorithm,
        size: digest.bytes.len() as u16,
    };
    Ok(Answer::Given([head.as_bytes(), &digest.bytes].concat()))
}

/// FSSETXATTR: flags and project.
fn set_fsxattr(namespace: &Namespace, caller: &Caller, ino: Ino, given: FsXattr) -> Result<()> {
    let known = XFS_FLAGS
        .iter()
        .fold(XFS_IGNORED, |bits, (bit, _)| bits | bit);
    if given.flags & !known != 0 {
        return Err(Error::NotSupported);
    }
    let change = |mut flags: FileFlags| {
        for (bit, flag) in XFS_FLAGS {
            flags.set(flag, given.flags & bit != 0);
        }
        flags
    };
    namespace.set_flags_and_project(caller, ino, change, Some(given.project))
}

/// Whoever sends a request for flags has not been looked at by every kernel. Where another owner is
/// shown than the inode has, it is that one.
fn checked(caller: &Caller, owner: Option<u32>) -> Result<Caller> {
    let checks = match owner {
        None => AccessChecks::Needed,
        Some(owner) if caller.uid == owner || caller.uid == 0 => AccessChecks::Done,
        Some(_) => return Err(Error::NotPermitted),
    };
    Ok(Caller {
        checks,
        ..caller.clone()
    })
}

fn argument<T: FromBytes>(input: &[u8]) -> Result<T> {
    match T::read_from_prefix(input) {
        Ok((argument, _)) => Ok(argument),
        Err(_) => Err(Error::Invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_of_linux() {
        assert_eq!(GETFLAGS, 0x8008_6601);
        assert_eq!(SETFLAGS, 0x4008_6602);
        assert_eq!(GETVERSION, 0x8008_7601);
        assert_eq!(GETVERSION_OLD, 0x8008_6603);
        assert_eq!(FSGETXATTR, 0x801c_581f);
        assert_eq!(FSSETXATTR, 0x401c_5820);
        assert_eq!(GETFSLABEL, 0x8100_9431);
        assert_eq!(SETFSLABEL, 0x4100_9432);
        assert_eq!(FITRIM, 0xc018_5879);
        assert_eq!(MEASURE_VERITY, 0xc004_6686);
        assert_eq!(ENABLE_VERITY, 0x4080_6685);
    }

    #[test]
    fn some_flags_protect_data() {
        let protects = |command, flags: u32| protects_data(command, &flags.to_ne_bytes());
        assert!(protects(SETFLAGS, 0x8_0010) && protects(SETFLAGS_32, 0x20));
        assert!(!protects(SETFLAGS, 0x8_0040) && !protects(GETFLAGS, 0x10));
        let given = |flags| FsXattr {
            flags,
            ..FsXattr::default()
        };
        assert!(protects_data(FSSETXATTR, given(0x8).as_bytes()));
        assert!(!protects_data(FSSETXATTR, given(0x20).as_bytes()));
        assert!(!protects_data(FSSETXATTR, &[]));
    }

    #[test]
    fn flags_are_for_the_owner_that_is_shown() {
        let user = Caller {
            uid: 7,
            ..Caller::root()
        };
        assert!(!checked(&user, None).unwrap().is_checked());
        assert!(checked(&user, Some(7)).unwrap().is_checked());
        assert!(checked(&user, Some(8)).is_err());
        assert!(checked(&Caller::root(), Some(8)).unwrap().is_checked());
        // The superuser's flags stay the superuser's.
        assert_eq!(checked(&user, Some(7)).unwrap().uid, 7);
    }
}
