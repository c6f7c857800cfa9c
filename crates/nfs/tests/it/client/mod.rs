//! A client of one connection, of which every byte is under the test's control. It speaks by
//! `nfs3_types`, which is nothing that the server is made of.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use finefs_namespace::{MemoryStore, Namespace, Options};
use finefs_nfs::{ExportOptions, Server, Squash};
use nfs3_types::mount;
use nfs3_types::nfs3::*;
use nfs3_types::rpc::{auth_unix, call_body, opaque_auth};
use nfs3_types::xdr_codec::{Opaque, Pack, Unpack};

/// Longest time that a test waits for a reply.
const PATIENCE: Duration = Duration::from_secs(60);

pub const NFS: (u32, u32) = (100_003, 3);
pub const MOUNT: (u32, u32) = (100_005, 3);

/// The numbers of procedures.
pub mod procedure {
    pub const NULL: u32 = 0;
    pub const GETATTR: u32 = 1;
    pub const SETATTR: u32 = 2;
    pub const LOOKUP: u32 = 3;
    pub const ACCESS: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const READ: u32 = 6;
    pub const WRITE: u32 = 7;
    pub const CREATE: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const SYMLINK: u32 = 10;
    pub const MKNOD: u32 = 11;
    pub const REMOVE: u32 = 12;
    pub const RMDIR: u32 = 13;
    pub const RENAME: u32 = 14;
    pub const LINK: u32 = 15;
    pub const READDIR: u32 = 16;
    pub const READDIRPLUS: u32 = 17;
    pub const FSSTAT: u32 = 18;
    pub const FSINFO: u32 = 19;
    pub const PATHCONF: u32 = 20;
    pub const COMMIT: u32 = 21;
}

/// A served file system in memory.
pub fn serve_memory(options: ExportOptions) -> (Server, Arc<Namespace>) {
    let store = MemoryStore::new(256 << 20, 0o755, 0, 0).expect("it is large enough");
    let namespace = store.into_namespace(Options {
        waits_for_thaw: false,
        ..Options::default()
    });
    let namespace = namespace.expect("it has a root");
    (serve(&namespace, options), namespace)
}

/// A server at a free port.
pub fn serve(namespace: &Arc<Namespace>, options: ExportOptions) -> Server {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    Server::start(Arc::clone(namespace), any, options).expect("a port is free")
}

/// An export to which root is root.
pub fn trusting() -> ExportOptions {
    ExportOptions {
        squash: Squash::None,
        ..ExportOptions::default()
    }
}

pub fn packed(value: &impl Pack) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.pack(&mut bytes).expect("memory does not end");
    bytes
}

/// Bytes of any length, as NLM's calls are put together by hand.
pub fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut packed = (bytes.len() as u32).to_be_bytes().to_vec();
    packed.extend(bytes);
    packed.resize(packed.len().next_multiple_of(4), 0);
    packed
}

pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// What a reply's body says, all of it.
pub fn unpacked<T: Unpack>(mut bytes: &[u8]) -> T {
    let (value, _) = T::unpack(&mut bytes).expect("a reply that RFC 1813 describes");
    assert!(bytes.is_empty(), "{} bytes are left over", bytes.len());
    value
}

/// The credential of a user.
pub fn user(uid: u32, gid: u32, groups: &[u32]) -> opaque_auth<'static> {
    opaque_auth::auth_unix(&auth_unix {
        stamp: 0,
        machinename: Opaque::borrowed(b"test"),
        uid,
        gid,
        gids: groups.to_vec(),
    })
}

pub struct Client {
    pub stream: TcpStream,
    pub credential: opaque_auth<'static>,
    pub root: nfs_fh3,
    xid: u32,
    /// Replies that came before those that were asked for.
    early: HashMap<u32, Vec<u8>>,
}

impl Client {
    /// Connects and mounts.
    pub fn new(server: &Server) -> Client {
        Client::by(server, user(0, 0, &[]))
    }

    pub fn by(server: &Server, credential: opaque_auth<'static>) -> Client {
        let mut client = Client::unmounted(server, credential);
        let result: mount::mountres3<'_> = client.call_program(MOUNT, 1, &dirpath("/"));
        let mount::mountres3::Ok(mounted) = result else {
            panic!("it can be mounted");
        };
        client.root = nfs_fh3 {
            data: Opaque::owned(mounted.fhandle.0.to_vec()),
        };
        client
    }

    pub fn unmounted(server: &Server, credential: opaque_auth<'static>) -> Client {
        let stream = TcpStream::connect(server.address()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client {
            stream,
            credential,
            root: nfs_fh3::default(),
            xid: rand::random(),
            early: HashMap::new(),
        }
    }

    /// The record of a call.
    pub fn record(
        &self,
        xid: u32,
        (program, version): (u32, u32),
        procedure: u32,
        arguments: &[u8],
    ) -> Vec<u8> {
        let body = call_body {
            rpcvers: 2,
            prog: program,
            vers: version,
            proc: procedure,
            cred: self.credential.borrow(),
            verf: opaque_auth::default(),
        };
        let call = [&xid.to_be_bytes()[..], &[0; 4], &packed(&body), arguments].concat();
        let mark = call.len() as u32 | 1 << 31;
        [&mark.to_be_bytes()[..], &call].concat()
    }

    pub fn next_xid(&mut self) -> u32 {
        self.xid = self.xid.wrapping_add(1);
        self.xid
    }

    /// Sends a call; gives its transaction id.
    pub fn send(&mut self, procedure: u32, arguments: &impl Pack) -> u32 {
        let xid = self.next_xid();
        let record = self.record(xid, NFS, procedure, &packed(arguments));
        self.stream.write_all(&record).expect("it listens");
        xid
    }

    /// The next reply, whichever: its transaction id, and what follows.
    pub fn receive(&mut self) -> std::io::Result<(u32, Vec<u8>)> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark)?;
        let mark = u32::from_be_bytes(mark);
        assert!(mark >> 31 == 1, "one fragment is enough");
        let mut record = vec![0; (mark & !(1 << 31)) as usize];
        self.stream.read_exact(&mut record)?;
        let xid = u32::from_be_bytes(record[..4].try_into().unwrap());
        Ok((xid, record.split_off(4)))
    }

    /// The reply to one call.
    pub fn reply(&mut self, xid: u32) -> Vec<u8> {
        loop {
            if let Some(reply) = self.early.remove(&xid) {
                return reply;
            }
            let (other, reply) = self.receive().expect("it answers");
            self.early.insert(other, reply);
        }
    }

    /// The result of a call that was carried out.
    pub fn result(&mut self, xid: u32) -> Vec<u8> {
        let reply = self.reply(xid);
        let head = [1u32, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
        assert_eq!(reply[..20], head, "it was carried out");
        reply[20..].to_vec()
    }

    pub fn call<T: Unpack>(&mut self, procedure: u32, arguments: &impl Pack) -> T {
        let xid = self.send(procedure, arguments);
        unpacked(&self.result(xid))
    }

    pub fn call_program<T: Unpack>(
        &mut self,
        program: (u32, u32),
        procedure: u32,
        arguments: &impl Pack,
    ) -> T {
        let xid = self.next_xid();
        let record = self.record(xid, program, procedure, &packed(arguments));
        self.stream.write_all(&record).expect("it listens");
        unpacked(&self.result(xid))
    }

    // --- calls that tests make often ---

    pub fn attributes(&mut self, handle: &nfs_fh3) -> Result<fattr3, nfsstat3> {
        let arguments = GETATTR3args {
            object: handle.clone(),
        };
        let result: GETATTR3res = self.call(procedure::GETATTR, &arguments);
        match result {
            GETATTR3res::Ok(done) => Ok(done.obj_attributes),
            GETATTR3res::Err((status, _)) => Err(status),
        }
    }

    pub fn lookup(&mut self, dir: &nfs_fh3, name: &str) -> Result<nfs_fh3, nfsstat3> {
        let arguments = LOOKUP3args {
            what: place(dir, name),
        };
        let result: LOOKUP3res = self.call(procedure::LOOKUP, &arguments);
        match result {
            LOOKUP3res::Ok(found) => Ok(found.object),
            LOOKUP3res::Err((status, _)) => Err(status),
        }
    }

    pub fn create(
        &mut self,
        dir: &nfs_fh3,
        name: &str,
        how: createhow3,
    ) -> Result<nfs_fh3, nfsstat3> {
        let arguments = CREATE3args {
            where_: place(dir, name),
            how,
        };
        let result: CREATE3res = self.call(procedure::CREATE, &arguments);
        match result {
            CREATE3res::Ok(made) => Ok(some(made.obj)),
            CREATE3res::Err((status, _)) => Err(status),
        }
    }

    pub fn make_file(&mut self, dir: &nfs_fh3, name: &str) -> nfs_fh3 {
        let how = createhow3::GUARDED(with_mode(0o644));
        self.create(dir, name, how).expect("the name is new")
    }

    /// A file of a mebibyte of this byte.
    pub fn make_filled(&mut self, dir: &nfs_fh3, name: &str, byte: u8) -> nfs_fh3 {
        let file = self.make_file(dir, name);
        self.write(&file, 0, &vec![byte; 1 << 20], stable_how::UNSTABLE)
            .unwrap();
        file
    }

    pub fn make_directory(&mut self, dir: &nfs_fh3, name: &str) -> Result<nfs_fh3, nfsstat3> {
        let arguments = MKDIR3args {
            where_: place(dir, name),
            attributes: with_mode(0o755),
        };
        let result: MKDIR3res = self.call(procedure::MKDIR, &arguments);
        match result {
            MKDIR3res::Ok(made) => Ok(some(made.obj)),
            MKDIR3res::Err((status, _)) => Err(status),
        }
    }

    pub fn write(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> Result<WRITE3resok, nfsstat3> {
        let arguments = WRITE3args {
            file: file.clone(),
            offset,
            count: data.len() as u32,
            stable,
            data: Opaque::borrowed(data),
        };
        let result: WRITE3res = self.call(procedure::WRITE, &arguments);
        match result {
            WRITE3res::Ok(written) => Ok(written),
            WRITE3res::Err((status, _)) => Err(status),
        }
    }

    pub fn read(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        count: u32,
    ) -> Result<(Vec<u8>, bool), nfsstat3> {
        let arguments = READ3args {
            file: file.clone(),
            offset,
            count,
        };
        let result: READ3res<'static> = self.call(procedure::READ, &arguments);
        match result {
            READ3res::Ok(read) => {
                assert_eq!(read.count as usize, read.data.len());
                Ok((read.data.to_vec(), read.eof))
            }
            READ3res::Err((status, _)) => Err(status),
        }
    }

    pub fn remove(&mut self, dir: &nfs_fh3, name: &str) -> Result<wcc_data, nfsstat3> {
        let arguments = REMOVE3args {
            object: place(dir, name),
        };
        let result: REMOVE3res = self.call(procedure::REMOVE, &arguments);
        match result {
            REMOVE3res::Ok(done) => Ok(done.dir_wcc),
            REMOVE3res::Err((status, _)) => Err(status),
        }
    }

    pub fn set(&mut self, object: &nfs_fh3, attributes: sattr3) -> Result<(), nfsstat3> {
        let arguments = SETATTR3args {
            object: object.clone(),
            new_attributes: attributes,
            guard: Nfs3Option::None,
        };
        let result: SETATTR3res = self.call(procedure::SETATTR, &arguments);
        match result {
            SETATTR3res::Ok(_) => Ok(()),
            SETATTR3res::Err((status, _)) => Err(status),
        }
    }

    /// All names of a directory, so many bytes at a time.
    pub fn list(&mut self, dir: &nfs_fh3, count: u32) -> Vec<(String, u64)> {
        let (mut names, mut cookie, mut verifier) = (Vec::new(), 0, cookieverf3([0; 8]));
        loop {
            let arguments = READDIR3args {
                dir: dir.clone(),
                cookie,
                cookieverf: verifier,
                count,
            };
            let xid = self.send(procedure::READDIR, &arguments);
            let result = self.result(xid);
            assert!(result.len() <= count as usize, "no more than was asked for");
            let READDIR3res::Ok(listed) = unpacked(&result) else {
                panic!("it can be listed");
            };
            verifier = listed.cookieverf;
            for entry in listed.reply.entries.0 {
                cookie = entry.cookie;
                let name = String::from_utf8(entry.name.0.to_vec()).unwrap();
                names.push((name, entry.cookie));
            }
            if listed.reply.eof {
                return names;
            }
        }
    }
}

/// A path as MOUNT takes it.
pub fn dirpath(path: &str) -> Opaque<'_> {
    Opaque::borrowed(path.as_bytes())
}

pub fn place<'a>(dir: &nfs_fh3, name: &'a str) -> diropargs3<'a> {
    diropargs3 {
        dir: dir.clone(),
        name: filename3(Opaque::borrowed(name.as_bytes())),
    }
}

pub fn with_mode(mode: u32) -> sattr3 {
    sattr3 {
        mode: Nfs3Option::Some(mode),
        ..sattr3::default()
    }
}

pub fn with_size(size: u64) -> sattr3 {
    sattr3 {
        size: Nfs3Option::Some(size),
        ..sattr3::default()
    }
}

/// What must be there.
pub fn some<T: Pack + Unpack>(option: Nfs3Option<T>) -> T {
    match option {
        Nfs3Option::Some(value) => value,
        Nfs3Option::None => panic!("it is told"),
    }
}

pub fn is_some<T: Pack + Unpack>(option: &Nfs3Option<T>) -> bool {
    matches!(option, Nfs3Option::Some(_))
}
