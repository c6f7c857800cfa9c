//! Requests without a mount: what only the flags of the protocol tell.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;

use finefs_namespace::types::{SetAttributes, SetTime, Timestamp};
use finefs_namespace::{MemoryStore, Options};

use super::*;
use crate::abi::{SetxattrExtIn, SetxattrIn, opcode};
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
    let header = InHeader {
        length: (size_of::<InHeader>() + fixed.len() + rest.len()) as u32,
        opcode: code,
        unique: 1,
        node,
        uid: by,
        gid: by,
        pid: 1,
        extension_length: 0,
        padding: 0,
    };
    let answer = adapter.serve(&header, fixed, rest, &mut [0; 4096]);
    assert!(answer.is_ok(), "{code}: {answer:?}");
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

/// A request that finds no space waits for FORGETs only where there may be some to come.
#[test]
fn only_what_was_removed_lately_is_waited_for() {
    let adapter = adapter(Negotiated::default());
    file(&adapter, b"f");
    assert!(!adapter.has_removed_lately());
    let root = adapter.numbers.node(adapter.namespace.root());
    serve(&adapter, opcode::UNLINK, root, 0, &[], b"f\0");
    assert!(adapter.has_removed_lately());
    let then = coarse_ms() - REMOVED_LATELY.as_millis() as u64 - 1;
    adapter.removed_ms.store(then, Ordering::Relaxed);
    assert!(!adapter.has_removed_lately());
}
