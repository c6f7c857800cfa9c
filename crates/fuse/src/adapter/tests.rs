//! Requests without a mount: what only the flags of the protocol tell.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;

use finefs_namespace::types::{SetAttributes, SetTime, Timestamp};
use finefs_namespace::{MemoryStore, Options};
use zerocopy::FromZeros;

use super::*;
use crate::abi::{CopyFileRangeIn, SetxattrExtIn, SetxattrIn, opcode};
use crate::device::Device;

const ACCESS: &[u8] = b"system.posix_acl_access\0";

/// An ACL with an entry for user 51; the mode beside it is 0751.
fn acl() -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let mut value = vec![2, 0, 0, 0];
    for (tag, permissions, id) in [
        (1u16, 7u16, NOBODY),
        (2, 6, 51),
        (4, 5, NOBODY),
        (16, 5, NOBODY),
        (32, 1, NOBODY),
    ] {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

fn adapter(negotiated: Negotiated) -> Adapter {
    let store = MemoryStore::new(1 << 20, 0o755, 0, 0).unwrap();
    let options = Options {
        atime: finefs_namespace::AtimePolicy::Strict,
        ..Options::default()
    };
    let namespace = Namespace::without_thread(Arc::new(store), options).unwrap();
    Adapter::new(Arc::new(namespace), negotiated, None)
}

/// A file of mode 2775 that belongs to user and group 50, its node and number.
fn file(adapter: &Adapter, name: &[u8]) -> (u64, Ino) {
    let (ns, root) = (&adapter.namespace, Caller::root());
    let made = ns.create_file(&root, ns.root(), name, 0o600).unwrap();
    let owner = SetAttributes {
        uid: Some(50),
        gid: Some(50),
        ..SetAttributes::default()
    };
    ns.set_attributes(&root, made.ino, &owner).unwrap();
    let mode = SetAttributes {
        permissions: Some(0o2775),
        ..SetAttributes::default()
    };
    ns.set_attributes(&root, made.ino, &mode).unwrap();
    (adapter.numbers.node(made.ino), made.ino)
}

fn serve(adapter: &Adapter, code: u32, node: u64, by: u32, fixed: &[u8], rest: &[u8]) {
    let answer = answer(adapter, code, node, by, fixed, (rest, &[]));
    assert!(answer.is_ok(), "{code}: {answer:?}");
}

/// Serves a request with something appended to it.
fn answer(
    adapter: &Adapter,
    code: u32,
    node: u64,
    by: u32,
    fixed: &[u8],
    (rest, extension): (&[u8], &[u8]),
) -> std::result::Result<usize, Refusal> {
    let rest = [rest, extension].concat();
    let header = InHeader {
        length: (size_of::<InHeader>() + fixed.len() + rest.len()) as u32,
        opcode: code,
        unique: 1,
        node,
        uid: by,
        gid: by,
        pid: 1,
        extension_length: (extension.len() / 8) as u16,
        padding: 0,
    };
    adapter.serve(&header, fixed, &rest, &mut [0; 4096])
}

fn set_xattr(adapter: &Adapter, node: u64, by: u32, flags: Option<u32>, name: &[u8]) {
    let value = acl();
    let first = SetxattrIn {
        size: value.len() as u32,
        flags: 0,
    };
    let second = flags.map(|setxattr_flags| SetxattrExtIn {
        setxattr_flags,
        padding: 0,
    });
    let second = second.as_ref().map_or(&[][..], IntoBytes::as_bytes);
    let rest = [second, name, &value].concat();
    serve(adapter, opcode::SETXATTR, node, by, first.as_bytes(), &rest);
}

#[test]
fn an_acl_takes_the_setgid_bit_when_the_kernel_says_so() {
    // What follows the user: the flags, where they were agreed on, and whether the bit stays.
    for (by, flags, is_kept) in [
        // It knows of more groups than the header has, and of capabilities.
        (51, Some(0), true),
        (51, Some(1), false),
        (0, Some(1), false),
        // It does not tell.
        (50, None, true),
        (51, None, false),
        (0, None, true),
    ] {
        let adapter = adapter(Negotiated {
            has_setxattr_flags: flags.is_some(),
            ..Negotiated::default()
        });
        let (node, ino) = file(&adapter, b"f");
        set_xattr(&adapter, node, by, flags, ACCESS);
        let mode = adapter.namespace.attributes(ino).unwrap().permissions;
        let expected = if is_kept { 0o2751 } else { 0o751 };
        assert_eq!(mode, expected, "{by}, {flags:?}: {mode:o}");
    }
}

/// One that was asked to check ACLs expects the mode to change with them.
#[test]
fn a_kernel_that_checks_no_acls_is_told_that_one_changed_the_mode() {
    for checks_acls in [false, true] {
        let (mut kernel, device) = UnixStream::pair().unwrap();
        kernel.set_nonblocking(true).unwrap();
        let adapter = adapter(Negotiated {
            checks_acls,
            ..Negotiated::default()
        })
        .telling(Arc::new(Device::new(device.into())));
        let (node, ino) = file(&adapter, b"f");
        let mut told = || {
            let mut notice = [0; 128];
            match kernel.read(&mut notice) {
                Ok(length) => Some((length, notice)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                Err(error) => panic!("{error}"),
            }
        };
        set_xattr(&adapter, node, 50, None, b"user.a\0");
        assert_eq!(told(), None, "no ACL");
        set_xattr(&adapter, node, 50, None, ACCESS);
        let notice = told();
        assert_eq!(notice.is_some(), !checks_acls);
        if let Some((length, notice)) = notice {
            // FUSE_NOTIFY_INVAL_INODE of the node, its attributes alone.
            assert_eq!((length, &notice[4..8]), (40, &2i32.to_ne_bytes()[..]));
            assert_eq!(notice[16..24], node.to_ne_bytes());
            assert_eq!(notice[24..32], (-1i64).to_ne_bytes());
        }
        let mode = || adapter.namespace.attributes(ino).unwrap().permissions;
        let before = mode();
        serve(&adapter, opcode::REMOVEXATTR, node, 50, &[], ACCESS);
        assert_eq!((told(), mode()), (None, before), "it is as it was");
    }
}

#[test]
fn what_is_opened_with_o_noatime_is_read_unnoted() {
    let adapter = adapter(Negotiated::default());
    let (file, _) = file(&adapter, b"f");
    let ns = &adapter.namespace;
    let root = adapter.numbers.node(ns.root());
    for (code, node) in [
        (opcode::READ, file),
        (opcode::READDIR, root),
        (opcode::READDIRPLUS, root),
    ] {
        let ino = adapter.numbers.ino(node);
        for (flags, is_noted) in [(libc::O_NOATIME, false), (0, true)] {
            let long_ago = Timestamp::new(1_000_000, 0);
            let change = SetAttributes {
                accessed: Some(SetTime::To(long_ago)),
                ..SetAttributes::default()
            };
            ns.set_attributes(&Caller::root(), ino, &change).unwrap();
            let fields = ReadIn {
                handle: 0,
                offset: 0,
                size: 4096,
                read_flags: 0,
                lock_owner: 0,
                flags: flags as u32,
                padding: 0,
            };
            serve(&adapter, code, node, 0, fields.as_bytes(), &[]);
            let accessed = ns.attributes(ino).unwrap().times.accessed;
            assert_eq!(accessed != long_ago, is_noted, "{code}, {flags:o}");
        }
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// What is appended where a security module has a label for what is made.
fn with_label(value: &[u8]) -> Vec<u8> {
    const NAME: &[u8] = b"security.selinux\0";
    let mut label = [&words(&[value.len() as u32, 0])[..], NAME, value].concat();
    label.resize(label.len().next_multiple_of(8), 0);
    [words(&[8 + label.len() as u32, 1]), label].concat()
}

#[test]
fn what_is_made_has_its_label_from_the_start() {
    let adapter = adapter(Negotiated::default());
    let ns = &adapter.namespace;
    let root = adapter.numbers.node(ns.root());
    // A short one, and one that the store may have a place of its own for.
    let values = [b"system_u:object_r:etc_t:s0\0".to_vec(), vec![b'x'; 3000]];
    for (round, value) in values.iter().enumerate() {
        let extension = with_label(value);
        let name = |kind: &str| format!("{kind}{round}\0").into_bytes();
        let node = |mode: u32| words(&[mode, 0, 0o022, 0]);
        let target = [name("link"), b"target\0".to_vec()].concat();
        let requests = [
            (opcode::MKNOD, node(0o100_666), name("file")),
            (opcode::MKNOD, node(0o010_666), name("pipe")),
            (opcode::MKDIR, words(&[0o777, 0o022]), name("dir")),
            (opcode::SYMLINK, Vec::new(), target),
            (opcode::TMPFILE, words(&[0, 0o666, 0, 0]), name("none")),
        ];
        for (code, fixed, rest) in requests {
            let made = answer(&adapter, code, root, 7, &fixed, (&rest, &extension));
            assert!(made.is_ok(), "{code}: {made:?}");
            let end = rest.iter().position(|byte| *byte == 0).unwrap();
            let found = ns.lookup(&Caller::root(), ns.root(), &rest[..end]);
            if code == opcode::TMPFILE {
                assert_eq!(found, Err(Error::NotFound));
                continue;
            }
            let found = ns.xattr(&Caller::root(), found.unwrap().ino, b"security.selinux");
            assert_eq!(found.as_ref(), Ok(value), "{code}");
        }
    }
    // Nothing is made of a request that is not understood.
    let bad = words(&[16, 1, 0, 0]);
    let fixed = words(&[0o777, 0]);
    let refused = answer(&adapter, opcode::MKDIR, root, 7, &fixed, (b"bad\0", &bad));
    assert_eq!(refused, Err(Refusal::Errno(libc::EINVAL)));
    let found = ns.lookup(&Caller::root(), ns.root(), b"bad");
    assert_eq!(found, Err(Error::NotFound));
}

/// Where everything gets its directory's group a program keeps the set-group-ID bit if its maker is
/// in that group, of which the request names the one that counts.
#[test]
fn the_group_that_is_named_counts() {
    let store = MemoryStore::new(1 << 20, 0o777, 0, 50).unwrap();
    let options = Options {
        has_bsd_groups: true,
        ..Options::default()
    };
    let namespace = Namespace::without_thread(Arc::new(store), options).unwrap();
    let adapter = Adapter::new(Arc::new(namespace), Negotiated::default(), None);
    let ns = &adapter.namespace;
    let root = adapter.numbers.node(ns.root());
    let member = words(&[16, 32, 1, 50]);
    let other = words(&[16, 32, 1, 51]);
    for (name, extension, mode) in [
        ("member\0", &member[..], 0o2755),
        ("other\0", &other[..], 0o755),
        ("nobody\0", &[][..], 0o755),
    ] {
        let fixed = words(&[0o102_755, 0, 0, 0]);
        let rest = (name.as_bytes(), extension);
        answer(&adapter, opcode::MKNOD, root, 7, &fixed, rest).unwrap();
        let name = name.trim_end_matches('\0').as_bytes();
        let made = ns.lookup(&Caller::root(), ns.root(), name).unwrap();
        assert_eq!((made.permissions, made.gid), (mode, 50));
    }
}

/// Both forms of a copy; no flag is known.
#[test]
fn ranges_are_copied_in_both_forms() {
    let adapter = adapter(Negotiated::default());
    let (from, source) = file(&adapter, b"from");
    let (to, target) = file(&adapter, b"to");
    let ns = &adapter.namespace;
    ns.write(source, 0, &[1; 5000]).unwrap();
    let fields = |length: u64, flags: u64| CopyFileRangeIn {
        handle: 0,
        offset: 10,
        node_out: to,
        handle_out: 0,
        offset_out: 20,
        length,
        flags,
    };
    for code in [opcode::COPY_FILE_RANGE, opcode::COPY_FILE_RANGE_64] {
        for (length, flags, outcome) in [
            (100, 0, Ok(100)),
            (u64::MAX, 0, Ok(4990)),
            (0, 0, Ok(0)),
            (100, 1, Err(Refusal::Errno(libc::EINVAL))),
        ] {
            let fields = fields(length, flags);
            let mut header = InHeader::new_zeroed();
            (header.opcode, header.node, header.uid) = (code, from, 7);
            let mut space = [0; 64];
            let answer = adapter.serve(&header, fields.as_bytes(), &[], &mut space);
            let copied = answer.map(|_| u64::from_ne_bytes(*space.first_chunk().unwrap()));
            assert_eq!(copied, outcome, "{code}, {length}");
        }
    }
    let mut found = vec![0; 6000];
    assert_eq!(ns.read(target, 20, &mut found), Ok(4990));
    assert!(found[..4990].iter().all(|byte| *byte == 1));
    // By somebody who is not root, and not in the group.
    let mode = ns.attributes(target).unwrap().permissions;
    assert_eq!(mode, 0o775);
}
