//! Several file systems in one server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;

use crate::client::*;
use finefs::ImageOptions;
use finefs_namespace::{MemoryStore, Namespace, Options};
use finefs_nfs::{ExportOptions, Served, Server, ServerOptions, Squash};
use nfs3_types::mount::mountres3;
use nfs3_types::nfs3::*;
use nfs3_types::xdr_codec::Opaque;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn memory() -> Arc<Namespace> {
    let store = MemoryStore::new(16 << 20, 0o777, 0, 0).unwrap();
    store.into_namespace(Options::default()).unwrap()
}

fn served(name: &str, namespace: &Arc<Namespace>, options: ExportOptions) -> Served {
    Served {
        name: name.into(),
        namespace: Arc::clone(namespace),
        options,
    }
}

fn mount(client: &mut Client, path: &str) -> Result<nfs_fh3, u32> {
    let result: mountres3<'static> = client.call_program(MOUNT, 1, &dirpath(path));
    match result {
        mountres3::Ok(mounted) => Ok(nfs_fh3 {
            data: Opaque::owned(mounted.fhandle.0.to_vec()),
        }),
        mountres3::Err(status) => Err(status as u32),
    }
}

#[test]
fn each_export_has_its_own_rules() {
    let (data, docs, hidden) = (memory(), memory(), memory());
    let docs_options = ExportOptions {
        is_read_only: true,
        ..ExportOptions::default()
    };
    let hidden_options = ExportOptions {
        clients: vec!["192.0.2.0/24".parse().unwrap()],
        squash: Squash::None,
        ..ExportOptions::default()
    };
    let all = vec![
        served("/data", &data, trusting()),
        served("/data-old", &docs, docs_options),
        served("/hidden", &hidden, hidden_options),
    ];
    let options = ServerOptions::at(SocketAddr::new(HERE, 0));
    let server = Server::start_all(all, &options).unwrap();
    let mut client = Client::unmounted(&server, user(0, 0, &[]));
    assert_eq!(mount(&mut client, "/"), Err(2));
    assert_eq!(mount(&mut client, "/dat"), Err(2));
    assert_eq!(mount(&mut client, "/hidden"), Err(13));
    let data_root = mount(&mut client, "/data").unwrap();
    let docs_root = mount(&mut client, "/data-old/").unwrap();
    assert_ne!(data_root, docs_root);
    let dir = client.make_directory(&data_root, "dir").unwrap();
    assert_eq!(mount(&mut client, "/data/dir").unwrap(), dir);
    let refused = client.make_directory(&docs_root, "dir").unwrap_err();
    assert_eq!(refused, nfsstat3::NFS3ERR_ROFS);
    assert_eq!(client.attributes(&dir).unwrap().uid, 0);
    let fsid = |client: &mut Client, root| client.attributes(root).unwrap().fsid;
    assert_ne!(fsid(&mut client, &data_root), fsid(&mut client, &docs_root));
    // A handle of the hidden one, as another client may have given it away.
    let open = vec![served("/", &hidden, trusting())];
    let elsewhere = Server::start_all(open, &options).unwrap();
    let handle = Client::new(&elsewhere).root;
    let xid = client.send(procedure::GETATTR, &GETATTR3args { object: handle });
    // Denied: AUTH_TOOWEAK.
    let denied = [1u32, 1, 1, 5].map(u32::to_be_bytes).concat();
    assert_eq!(client.reply(xid), denied);
    let xid = client.next_xid();
    let record = client.record(xid, MOUNT, 5, &[]);
    std::io::Write::write_all(&mut client.stream, &record).unwrap();
    let list = String::from_utf8_lossy(&client.result(xid)).into_owned();
    assert!(list.contains("/data-old") && list.contains("192.0.2.0/24"));
    server.stop();
    elsewhere.stop();
}

#[test]
fn exports_that_clients_cannot_tell_apart_are_refused() {
    let options = ServerOptions::at(SocketAddr::new(HERE, 0));
    let (one, two) = (memory(), memory());
    let same_name = vec![
        served("/a", &one, trusting()),
        served("/a", &two, trusting()),
    ];
    assert!(Server::start_all(same_name, &options).is_err());
    let same_uuid = vec![
        served("/a", &one, trusting()),
        served("/b", &one, trusting()),
    ];
    let error = Server::start_all(same_uuid, &options).err().unwrap();
    assert!(error.to_string().contains("UUID"), "{error}");
    assert!(Server::start_all(Vec::new(), &options).is_err());
}

/// Clients know them by `fsid`, which is half as long as a UUID.
#[test]
fn exports_whose_uuids_are_alike_are_told_apart_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let open = |uuid: &str| {
        let image = directory.path().join(uuid);
        let mut mke2fs = Command::new("mke2fs");
        mke2fs.args(["-q", "-F", "-t", "ext4", "-U", uuid]);
        let made = mke2fs.arg(&image).arg("4m").status();
        assert!(made.expect("mke2fs runs").success());
        let opened = finefs::front_end::open_image(&image, ImageOptions::new());
        opened.expect("it is sound").namespace
    };
    let serve = |one: &str, two: &str| {
        let all = vec![
            served("/a", &open(one), trusting()),
            served("/b", &open(two), trusting()),
        ];
        Server::start_all(all, &ServerOptions::at(SocketAddr::new(HERE, 0)))
    };
    let (one, two) = (
        "12345678-0000-0000-0000-000000000001",
        "12345678-0000-0000-0000-000000000002",
    );
    let server = serve(one, two).unwrap();
    let mut client = Client::unmounted(&server, user(0, 0, &[]));
    let fsids = ["/a", "/b"].map(|path| {
        let root = mount(&mut client, path).unwrap();
        client.attributes(&root).unwrap().fsid
    });
    assert_ne!(fsids[0], fsids[1]);
    server.stop();

    let (one, two) = (
        "12345678-0000-0001-0000-000000000002",
        "00000000-0000-0002-1234-567800000001",
    );
    let error = serve(one, two).err().unwrap();
    assert!(error.to_string().contains("UUID"), "{error}");
}

#[test]
fn ports_of_ordinary_users_are_refused_where_the_export_says_so() {
    let options = ExportOptions {
        needs_reserved_port: true,
        ..trusting()
    };
    let (server, _namespace) = serve_memory(options);
    let mut client = Client::unmounted(&server, user(0, 0, &[]));
    assert_eq!(mount(&mut client, "/"), Err(13));
    server.stop();
}
