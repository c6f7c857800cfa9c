//! Each procedure over a socket: what it gives, its errors, and what it tells of attributes.

use crate::client::*;
use finefs_namespace::{Caller, FileFlags, Ino};
use nfs3_types::nfs3::*;
use nfs3_types::rpc::opaque_auth;
use nfs3_types::xdr_codec::{Opaque, Void};

fn time(seconds: u32, nseconds: u32) -> nfstime3 {
    nfstime3 { seconds, nseconds }
}

#[test]
fn files_are_made_written_read_and_removed() {
    let (server, namespace) = serve_memory(trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let _: Void = client.call(procedure::NULL, &Void);

    let file = client.make_file(&root, "file");
    let again = client.create(&root, "file", createhow3::GUARDED(with_mode(0o600)));
    assert_eq!(again.unwrap_err(), nfsstat3::NFS3ERR_EXIST);
    assert_eq!(client.lookup(&root, "file").unwrap(), file);

    let data: Vec<u8> = (0..100_001u32).map(|number| number as u8).collect();
    let written = client.write(&file, 3, &data, stable_how::UNSTABLE).unwrap();
    assert_eq!(written.count, 100_001);
    assert_eq!(some(written.file_wcc.before).size, 0);
    assert_eq!(some(written.file_wcc.after).size, 100_004);
    let (read, is_end) = client.read(&file, 0, 50_000).unwrap();
    assert!(!is_end && read[..3] == [0; 3] && read[3..] == data[..49_997]);
    // A length that is no multiple of four.
    let (read, is_end) = client.read(&file, 50_000, 1 << 20).unwrap();
    assert!(is_end && read == data[49_997..]);
    assert_eq!(client.read(&file, 1 << 40, 10).unwrap(), (vec![], true));
    assert_eq!(
        client.read(&root, 0, 10).unwrap_err(),
        nfsstat3::NFS3ERR_ISDIR
    );

    let wcc = client.remove(&root, "file").unwrap();
    assert!(is_some(&wcc.before) && is_some(&wcc.after));
    for status in [
        client.remove(&root, "file").unwrap_err(),
        client.lookup(&root, "file").unwrap_err(),
    ] {
        assert_eq!(status, nfsstat3::NFS3ERR_NOENT);
    }
    assert_eq!(
        client.attributes(&file).unwrap_err(),
        nfsstat3::NFS3ERR_STALE
    );
    // Its number is used again, and is not it.
    let other = client.make_file(&root, "other");
    assert_ne!(other, file);
    assert_eq!(
        client.read(&file, 0, 1).unwrap_err(),
        nfsstat3::NFS3ERR_STALE
    );
    server.stop();
    namespace.shut_down().unwrap();
}

#[test]
fn creates_do_what_their_modes_say() {
    let (server, _namespace) = serve_memory(trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let exclusive = |verifier: u8| createhow3::EXCLUSIVE(createverf3([verifier; 8]));
    let file = client.create(&root, "file", exclusive(0xf7)).unwrap();
    // The reply was lost.
    assert_eq!(client.create(&root, "file", exclusive(0xf7)).unwrap(), file);
    let by_another = client.create(&root, "file", exclusive(8));
    assert_eq!(by_another.unwrap_err(), nfsstat3::NFS3ERR_EXIST);
    client.set(&file, with_mode(0o640)).unwrap();
    client
        .write(&file, 0, b"12345", stable_how::FILE_SYNC)
        .unwrap();

    let unchecked = client.create(&root, "file", createhow3::UNCHECKED(with_mode(0o777)));
    assert_eq!(unchecked.unwrap(), file);
    let attributes = client.attributes(&file).unwrap();
    assert_eq!((attributes.mode, attributes.size), (0o640, 5));
    let cut = createhow3::UNCHECKED(with_size(2));
    assert_eq!(client.create(&root, "file", cut).unwrap(), file);
    assert_eq!(client.attributes(&file).unwrap().size, 2);

    client.make_directory(&root, "dir").unwrap();
    // What cannot be made as it is wanted is not there.
    let huge = || createhow3::GUARDED(with_size(u64::MAX));
    for _ in 0..2 {
        let failed = client.create(&root, "huge", huge()).unwrap_err();
        assert_eq!(failed, nfsstat3::NFS3ERR_FBIG);
    }
    let over = client.create(&root, "dir", createhow3::UNCHECKED(with_mode(0o644)));
    assert_eq!(over.unwrap_err(), nfsstat3::NFS3ERR_EXIST);
    let wrong = client.create(&root, "a/b", createhow3::GUARDED(with_mode(0o644)));
    assert_eq!(wrong.unwrap_err(), nfsstat3::NFS3ERR_INVAL);
    let long = client.create(&root, &"x".repeat(256), exclusive(1));
    assert_eq!(long.unwrap_err(), nfsstat3::NFS3ERR_NAMETOOLONG);
    let within = client.create(&file, "x", exclusive(1));
    assert_eq!(within.unwrap_err(), nfsstat3::NFS3ERR_NOTDIR);
}

#[test]
fn attributes_are_set_and_guarded() {
    let (server, _namespace) = serve_memory(trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let file = client.make_file(&root, "file");
    let all = sattr3 {
        mode: Nfs3Option::Some(0o4755),
        uid: Nfs3Option::Some(1000),
        gid: Nfs3Option::Some(100),
        size: Nfs3Option::Some(4097),
        atime: set_atime::SET_TO_CLIENT_TIME(time(1_000_000_000, 5)),
        mtime: set_mtime::SET_TO_CLIENT_TIME(time(4_000_000_000, 999_999_999)),
    };
    client.set(&file, all).unwrap();
    let set = client.attributes(&file).unwrap();
    assert_eq!(
        (set.mode, set.uid, set.gid, set.size),
        (0o4755, 1000, 100, 4097)
    );
    assert_eq!(set.atime, time(1_000_000_000, 5));
    assert_eq!(set.mtime, time(4_000_000_000, 999_999_999));
    assert_eq!((set.type_, set.nlink), (ftype3::NF3REG, 1));

    let guarded = |guard| SETATTR3args {
        object: file.clone(),
        new_attributes: with_mode(0o600),
        guard: Nfs3Option::Some(guard),
    };
    let result: SETATTR3res = client.call(procedure::SETATTR, &guarded(time(1, 1)));
    let SETATTR3res::Err((status, failed)) = result else {
        panic!("the guard is another time");
    };
    assert_eq!(status, nfsstat3::NFS3ERR_NOT_SYNC);
    assert_eq!(some(failed.obj_wcc.after).mode, 0o4755);
    let result: SETATTR3res = client.call(procedure::SETATTR, &guarded(set.ctime));
    assert_eq!(some(result.unwrap().obj_wcc.after).mode, 0o600);
}

#[test]
fn names_are_linked_renamed_and_resolved() {
    let (server, _namespace) = serve_memory(trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let (one, two) = (
        client.make_directory(&root, "one").unwrap(),
        client.make_directory(&root, "two").unwrap(),
    );
    assert_eq!(client.lookup(&one, "..").unwrap(), root);
    assert_eq!(client.lookup(&root, "..").unwrap(), root);
    assert_eq!(client.lookup(&one, ".").unwrap(), one);

    let symlink = SYMLINK3args {
        where_: place(&root, "symlink"),
        symlink: symlinkdata3 {
            symlink_attributes: sattr3::default(),
            symlink_data: nfspath3(Opaque::borrowed(b"one/file")),
        },
    };
    let made: SYMLINK3res = client.call(procedure::SYMLINK, &symlink);
    let symlink = some(made.unwrap().obj);
    let xid = client.send(procedure::READLINK, &READLINK3args { symlink });
    let result = client.result(xid);
    let target: READLINK3res<'static> = unpacked(&result);
    assert_eq!(*target.unwrap().data.0, *b"one/file");

    let with_nul = SYMLINK3args {
        where_: place(&root, "with-nul"),
        symlink: symlinkdata3 {
            symlink_attributes: sattr3::default(),
            symlink_data: nfspath3(Opaque::borrowed(b"one\0/file")),
        },
    };
    let refused: SYMLINK3res = client.call(procedure::SYMLINK, &with_nul);
    assert!(matches!(
        refused,
        SYMLINK3res::Err((nfsstat3::NFS3ERR_INVAL, _))
    ));
    let there = client.lookup(&root, "with-nul").unwrap_err();
    assert_eq!(there, nfsstat3::NFS3ERR_NOENT);

    let file = client.make_file(&one, "file");
    let link = LINK3args {
        file: file.clone(),
        link: place(&two, "link"),
    };
    let linked: LINK3res = client.call(procedure::LINK, &link);
    let linked = linked.unwrap();
    assert_eq!(some(linked.file_attributes).nlink, 2);
    assert!(is_some(&linked.linkdir_wcc.before));

    let rename = RENAME3args {
        from: place(&one, "file"),
        to: place(&two, "moved"),
    };
    let renamed: RENAME3res = client.call(procedure::RENAME, &rename);
    let renamed = renamed.unwrap();
    assert!(is_some(&renamed.fromdir_wcc.before) && is_some(&renamed.todir_wcc.before));
    let mut again: RENAME3res = client.call(procedure::RENAME, &rename);
    assert!(matches!(
        again,
        RENAME3res::Err((nfsstat3::NFS3ERR_NOENT, _))
    ));
    again = client.call(
        procedure::RENAME,
        &RENAME3args {
            from: place(&two, "moved"),
            to: place(&two, "link"),
        },
    );
    // Two names of one file: nothing happens.
    again.unwrap();
    assert_eq!(client.lookup(&two, "moved").unwrap(), file);

    let into_itself: RENAME3res = client.call(
        procedure::RENAME,
        &RENAME3args {
            from: place(&root, "two"),
            to: place(&two, "below"),
        },
    );
    assert!(matches!(
        into_itself,
        RENAME3res::Err((nfsstat3::NFS3ERR_INVAL, _))
    ));
    let rmdir = RMDIR3args {
        object: place(&root, "two"),
    };
    let full: RMDIR3res = client.call(procedure::RMDIR, &rmdir);
    assert!(matches!(
        full,
        RMDIR3res::Err((nfsstat3::NFS3ERR_NOTEMPTY, _))
    ));
    client.remove(&two, "moved").unwrap();
    client.remove(&two, "link").unwrap();
    let emptied: RMDIR3res = client.call(procedure::RMDIR, &rmdir);
    emptied.unwrap();
}

#[test]
fn nodes_of_all_kinds_are_made() {
    let (server, _namespace) = serve_memory(trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let device = || devicedata3 {
        dev_attributes: with_mode(0o600),
        spec: specdata3 {
            specdata1: 8,
            specdata2: 300,
        },
    };
    let kinds = [
        (mknoddata3::NF3CHR(device()), ftype3::NF3CHR),
        (mknoddata3::NF3BLK(device()), ftype3::NF3BLK),
        (mknoddata3::NF3SOCK(with_mode(0o600)), ftype3::NF3SOCK),
        (mknoddata3::NF3FIFO(with_mode(0o600)), ftype3::NF3FIFO),
    ];
    for (number, (what, kind)) in kinds.into_iter().enumerate() {
        let name = format!("node{number}");
        let arguments = MKNOD3args {
            where_: place(&root, &name),
            what,
        };
        let made: MKNOD3res = client.call(procedure::MKNOD, &arguments);
        let attributes = some(made.unwrap().obj_attributes);
        assert_eq!(attributes.type_, kind);
        if number < 2 {
            assert_eq!(
                (attributes.rdev.specdata1, attributes.rdev.specdata2),
                (8, 300)
            );
        }
    }
    // A device gives access to hardware: only root makes one.
    let mut user = Client::by(&server, user(1000, 1000, &[]));
    client.set(&root, with_mode(0o777)).unwrap();
    let arguments = MKNOD3args {
        where_: place(&root, "disk"),
        what: mknoddata3::NF3BLK(device()),
    };
    let refused: MKNOD3res = user.call(procedure::MKNOD, &arguments);
    assert!(matches!(
        refused,
        MKNOD3res::Err((nfsstat3::NFS3ERR_PERM, _))
    ));
}

#[test]
fn a_directory_is_listed_in_parts_of_any_size() {
    let (server, namespace) = serve_memory(trusting());
    let mut client = Client::new(&server);
    let dir = client.root.clone();
    let dir = client.make_directory(&dir, "dir").unwrap();
    for number in 0..500 {
        client.make_file(&dir, &format!("file{number}"));
    }
    let whole = client.list(&dir, 1 << 20);
    assert_eq!(whole.len(), 502);
    for count in [300, 512, 4096] {
        assert_eq!(client.list(&dir, count), whole, "count {count}");
    }
    let arguments = |count| READDIR3args {
        dir: dir.clone(),
        cookie: 0,
        cookieverf: cookieverf3([0; 8]),
        count,
    };
    let small: READDIR3res<'static> = client.call(procedure::READDIR, &arguments(100));
    assert!(matches!(
        small,
        READDIR3res::Err((nfsstat3::NFS3ERR_TOOSMALL, _))
    ));
    let wrong = READDIR3args {
        cookie: whole[10].1,
        cookieverf: cookieverf3([9; 8]),
        ..arguments(1000)
    };
    let wrong: READDIR3res<'static> = client.call(procedure::READDIR, &wrong);
    assert!(matches!(
        wrong,
        READDIR3res::Err((nfsstat3::NFS3ERR_BAD_COOKIE, _))
    ));

    // Another server over the same namespace goes on where this one was.
    server.stop();
    let server = serve(&namespace, trusting());
    let mut client = Client::new(&server);
    assert_eq!(client.list(&dir, 4096), whole);
    let (mut cookie, mut seen) = (0, 0);
    loop {
        let arguments = READDIRPLUS3args {
            dir: dir.clone(),
            cookie,
            cookieverf: cookieverf3([0; 8]),
            dircount: 1000,
            maxcount: 8192,
        };
        let xid = client.send(procedure::READDIRPLUS, &arguments);
        let result = client.result(xid);
        assert!(result.len() <= 8192);
        let READDIRPLUS3res::Ok(listed) = unpacked(&result) else {
            panic!("it can be listed");
        };
        for entry in listed.reply.entries.0 {
            let name = String::from_utf8(entry.name.0.to_vec()).unwrap();
            assert_eq!(name, whole[seen].0);
            let attributes = some(entry.name_attributes);
            assert_eq!(attributes.fileid, entry.fileid);
            assert_eq!(some(entry.name_handle), client.lookup(&dir, &name).unwrap());
            (cookie, seen) = (entry.cookie, seen + 1);
        }
        if listed.reply.eof {
            break;
        }
    }
    assert_eq!(seen, whole.len());
}

#[test]
fn facts_and_commits() {
    let (server, _namespace) = serve_memory(trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let info: FSINFO3res = client.call(
        procedure::FSINFO,
        &FSINFO3args {
            fsroot: root.clone(),
        },
    );
    let info = info.unwrap();
    assert_eq!((info.rtmax, info.wtmax), (1 << 20, 1 << 20));
    assert_eq!(
        info.properties,
        FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME
    );
    let statistics: FSSTAT3res = client.call(
        procedure::FSSTAT,
        &FSSTAT3args {
            fsroot: root.clone(),
        },
    );
    let statistics = statistics.unwrap();
    assert_eq!(statistics.tbytes, 256 << 20);
    assert!(statistics.abytes <= statistics.fbytes && statistics.fbytes <= statistics.tbytes);
    let configuration: PATHCONF3res = client.call(
        procedure::PATHCONF,
        &PATHCONF3args {
            object: root.clone(),
        },
    );
    assert_eq!(configuration.unwrap().name_max, 255);

    let file = client.make_file(&root, "file");
    let commit = COMMIT3args {
        file: file.clone(),
        offset: 0,
        count: 0,
    };
    let committed: COMMIT3res = client.call(procedure::COMMIT, &commit);
    let committed = committed.unwrap();
    let written = client.write(&file, 0, b"x", stable_how::DATA_SYNC).unwrap();
    assert_eq!(written.committed, stable_how::DATA_SYNC);
    assert_eq!(written.verf, committed.verf);
    let big = client.write(&file, u64::MAX - 10, b"x", stable_how::UNSTABLE);
    assert_eq!(big.unwrap_err(), nfsstat3::NFS3ERR_FBIG);
}

#[test]
fn a_read_only_export_changes_nothing() {
    let (server, namespace) = serve_memory(trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let file = client.make_file(&root, "file");
    let arguments = MKNOD3args {
        where_: place(&root, "fifo"),
        what: mknoddata3::NF3FIFO(with_mode(0o600)),
    };
    let made: MKNOD3res = client.call(procedure::MKNOD, &arguments);
    let fifo = some(made.unwrap().obj);
    server.stop();
    let options = finefs_nfs::ExportOptions {
        is_read_only: true,
        ..trusting()
    };
    let server = serve(&namespace, options);
    let mut client = Client::new(&server);
    let status = nfsstat3::NFS3ERR_ROFS;
    assert_eq!(client.remove(&root, "file").unwrap_err(), status);
    assert_eq!(client.make_directory(&root, "d").unwrap_err(), status);
    assert_eq!(client.set(&file, with_size(1)).unwrap_err(), status);
    let written = client.write(&file, 0, b"x", stable_how::UNSTABLE);
    assert_eq!(written.unwrap_err(), status);
    let mut granted = |object| {
        let asked = ACCESS3args {
            object,
            access: 0x3f,
        };
        let access: ACCESS3res = client.call(procedure::ACCESS, &asked);
        access.unwrap().access
    };
    assert_eq!(granted(file), ACCESS3_READ);
    assert_eq!(granted(root), ACCESS3_READ | ACCESS3_LOOKUP);
    // What is written to it goes to a program on the client.
    let writes = ACCESS3_MODIFY | ACCESS3_EXTEND;
    assert_eq!(granted(fifo), ACCESS3_READ | writes);
}

/// What chattr +i forbids is not granted, and everything else still is.
#[test]
fn what_is_immutable_can_be_read_and_entered() {
    let (server, namespace) = serve_memory(trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let file = client.make_file(&root, "file");
    let dir = client.make_directory(&root, "dir").unwrap();
    let mut granted = |object: &nfs_fh3, flags: FileFlags| {
        let ino = Ino(client.attributes(object).unwrap().fileid);
        let set = namespace.set_flags(&Caller::root(), ino, |_| flags);
        set.unwrap();
        let arguments = ACCESS3args {
            object: object.clone(),
            access: 0x3f,
        };
        let access: ACCESS3res = client.call(procedure::ACCESS, &arguments);
        access.unwrap().access
    };
    let (reads, enters) = (ACCESS3_READ, ACCESS3_READ | ACCESS3_LOOKUP);
    assert_eq!(granted(&file, FileFlags::IMMUTABLE), reads);
    assert_eq!(granted(&dir, FileFlags::IMMUTABLE), enters);
    // Linux opens a file for appending only where it may be modified as well, and makes names only
    // where they may be deleted.
    let appends = ACCESS3_MODIFY | ACCESS3_EXTEND;
    assert_eq!(granted(&file, FileFlags::APPEND_ONLY), reads | appends);
    let makes = appends | ACCESS3_DELETE;
    assert_eq!(granted(&dir, FileFlags::APPEND_ONLY), enters | makes);
}

#[test]
fn users_may_what_modes_let_them() {
    let (server, _namespace) = serve_memory(trusting());
    let mut root_user = Client::new(&server);
    let root = root_user.root.clone();
    let dir = root_user.make_directory(&root, "dir").unwrap();
    root_user.set(&dir, with_mode(0o777)).unwrap();
    let mut owner = Client::by(&server, user(1000, 1000, &[]));
    let mut member = Client::by(&server, user(1001, 1001, &[7, 1000]));
    let mut other = Client::by(&server, user(1002, 1002, &[]));
    let file = owner.make_file(&dir, "file");
    let denied = nfsstat3::NFS3ERR_ACCES;
    owner
        .write(&file, 0, b"owner", stable_how::UNSTABLE)
        .unwrap();
    owner.set(&file, with_mode(0o060)).unwrap();
    // A file that is open stays open to its owner.
    owner
        .write(&file, 0, b"OWNER", stable_how::UNSTABLE)
        .unwrap();
    owner.set(&file, with_size(4)).unwrap();
    member
        .write(&file, 4, b"member", stable_how::UNSTABLE)
        .unwrap();
    assert_eq!(member.read(&file, 0, 100).unwrap().0, b"OWNEmember");
    assert_eq!(other.read(&file, 0, 100).unwrap_err(), denied);
    let written = other.write(&file, 0, b"x", stable_how::UNSTABLE);
    assert_eq!(written.unwrap_err(), denied);
    // Who may execute a file reads it.
    owner.set(&file, with_mode(0o001)).unwrap();
    assert_eq!(other.read(&file, 0, 4).unwrap().0, b"OWNE");
    assert_eq!(
        other.set(&file, with_mode(0o777)).unwrap_err(),
        nfsstat3::NFS3ERR_PERM
    );
    // A write takes set-id bits.
    owner.set(&file, with_mode(0o6777)).unwrap();
    other.write(&file, 0, b"x", stable_how::UNSTABLE).unwrap();
    assert_eq!(owner.attributes(&file).unwrap().mode, 0o777);

    // A directory that may be read and not searched tells names only.
    root_user.set(&dir, with_mode(0o744)).unwrap();
    assert_eq!(other.lookup(&dir, "file").unwrap_err(), denied);
    assert_eq!(other.list(&dir, 4096).len(), 3);
    let arguments = READDIRPLUS3args {
        dir: dir.clone(),
        cookie: 0,
        cookieverf: cookieverf3([0; 8]),
        dircount: 4096,
        maxcount: 4096,
    };
    let xid = other.send(procedure::READDIRPLUS, &arguments);
    let result = other.result(xid);
    let listed: READDIRPLUS3res<'static> = unpacked(&result);
    for entry in listed.unwrap().reply.entries.0 {
        assert!(!is_some(&entry.name_handle) && !is_some(&entry.name_attributes));
    }
}

#[test]
fn root_and_strangers_are_nobody_where_it_is_asked_for() {
    let (server, namespace) = serve_memory(finefs_nfs::ExportOptions::default());
    let set = finefs_namespace::SetAttributes {
        permissions: Some(0o777),
        ..finefs_namespace::SetAttributes::default()
    };
    let caller = finefs_namespace::Caller::root();
    namespace
        .set_attributes(&caller, namespace.root(), &set)
        .unwrap();
    for credential in [user(0, 0, &[]), opaque_auth::default()] {
        let mut client = Client::by(&server, credential);
        let root = client.root.clone();
        let file = client.make_file(&root, "file");
        let made = client.attributes(&file).unwrap();
        assert_eq!((made.uid, made.gid), (65534, 65534));
        client.remove(&root, "file").unwrap();
    }
    let mut client = Client::by(&server, user(1000, 100, &[]));
    let root = client.root.clone();
    let file = client.make_file(&root, "file");
    assert_eq!(client.attributes(&file).unwrap().uid, 1000);
    let mut nobody = Client::by(&server, user(0, 0, &[]));
    let refused = nobody.set(&file, with_mode(0o777)).unwrap_err();
    assert_eq!(refused, nfsstat3::NFS3ERR_PERM);
}

#[test]
fn what_is_frozen_is_asked_for_later() {
    let (server, namespace) = serve_memory(trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    namespace.freeze().unwrap();
    let later = nfsstat3::NFS3ERR_JUKEBOX;
    let made = client.create(&root, "file", createhow3::GUARDED(with_mode(0o644)));
    assert_eq!(made.unwrap_err(), later);
    assert_eq!(client.remove(&root, "file").unwrap_err(), later);
    client.attributes(&root).unwrap();
    namespace.thaw().unwrap();
    client.make_file(&root, "file");
}
