//! What the user of `finefs serve` is told: how clients mount, and where none of them can write.

use std::net::{IpAddr, SocketAddr};

use finefs::front_end::namespace::{AtimeUpdate, Attributes, DirectoryEntry, Namespace};
use finefs_nfs::{NOBODY, Rpcbind, Squash};

use super::exports::Export;

/// Write permission of owner, group and others.
const WRITE: [u32; 3] = [0o200, 0o020, 0o002];

/// What is served, and how to mount it. `served` has names of exports and what they are.
pub(super) fn how_to_mount(
    served: &[(String, String)],
    address: SocketAddr,
    rpcbind: Option<Rpcbind>,
) -> String {
    let port = address.port();
    let host = match address.ip() {
        ip if ip.is_unspecified() => "HOST".to_owned(),
        IpAddr::V6(ip) => format!("[{ip}]"),
        ip => ip.to_string(),
    };
    let mut text = String::new();
    for (name, source) in served {
        text += &match name.as_str() {
            "/" => format!("serving {source} at {address} (NFS version 3, TCP)\n"),
            name => format!("serving {source} as {name} at {address} (NFS version 3, TCP)\n"),
        };
    }
    let path = served.first().map_or("/", |(name, _)| name);
    // Without rpcbind clients do not find the lock manager.
    let (linux_locks, mac_locks) = match rpcbind {
        None => (",nolock", ",nolocks"),
        Some(_) => ("", ""),
    };
    let pid = std::process::id();
    let is_plain = host.trim_start_matches('[');
    text += &format!(
        "Linux:  mount -t nfs -o \
         vers=3,proto=tcp,port={port},mountproto=tcp,mountport={port}{linux_locks} {host}:{path} \
         DIR\n\
         macOS:  mount -t nfs -o vers=3,tcp,port={port},mountport={port}{mac_locks} {host}:{path} \
         DIR\n\
         nfs3_client (Rust): Nfs3ConnectionBuilder::new(TokioConnector, \"{plain}\", \
         \"{path}\").mount_port({port}).nfs3_port({port}).mount()\n\
         to end: finefs umount {address}, or kill {pid}\n",
        plain = is_plain.trim_end_matches(']'),
    );
    text
}

/// What to do where what is served is as mkfs makes it, and no client can make a file in it.
pub(super) fn advice(export: &Export, source: &str, namespace: &Namespace) -> Option<String> {
    let (squash, whom, owner) = match export.options.squash {
        Squash::Root => ("root", "root", "UID".to_owned()),
        Squash::All => ("all", "everybody", NOBODY.to_string()),
        Squash::None => return None,
    };
    if export.options.is_read_only || namespace.is_read_only() {
        return None;
    }
    // An error comes to light with the first client.
    let root = namespace.attributes(namespace.root()).ok()?;
    if may_write(export.options.squash, &root) || !is_fresh(namespace) {
        return None;
    }
    let (name, uid) = (&export.name, root.uid);
    Some(format!(
        "{source}: no client can write in {name}: it belongs to user {uid}, and squash={squash} \
         makes {whom} nobody; give it away (finefs chown {owner} {source}:/ when it is not served), \
         or serve it with squash=none"
    ))
}

/// True when a client can have a user that may write in this directory, by its permission bits.
fn may_write(squash: Squash, directory: &Attributes) -> bool {
    let can_be = |number: u32| match squash {
        Squash::Root => number != 0,
        Squash::All => number == NOBODY,
        Squash::None => true,
    };
    let [owner, group, others] = WRITE.map(|bit| directory.permissions & bit != 0);
    owner && can_be(directory.uid) || group && can_be(directory.gid) || others
}

/// True when there is nothing in a file system but what mkfs makes.
fn is_fresh(namespace: &Namespace) -> bool {
    let mut is_fresh = true;
    let mut look = |entry: DirectoryEntry<'_>| {
        is_fresh = matches!(entry.name, b"." | b".." | b"lost+found");
        is_fresh
    };
    let root = namespace.root();
    let listed = namespace.read_directory_with_atime(root, 0, &mut look, AtimeUpdate::Never);
    listed.is_ok() && is_fresh
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_stands_in_the_commands() {
        let one = [("/".to_owned(), "x.img".to_owned())];
        let text = how_to_mount(&one, "127.0.0.1:4711".parse().unwrap(), None);
        assert_eq!(text.matches("port=4711").count(), 4);
        assert!(text.contains("nolock 127.0.0.1:/ DIR"));
        assert!(text.contains("mount_port(4711)"));
        let text = how_to_mount(&one, "[::1]:4711".parse().unwrap(), None);
        assert!(text.contains(" [::1]:/ DIR") && text.contains("\"::1\""));
        let two = [
            ("/a".to_owned(), "x.img".to_owned()),
            ("/b".to_owned(), "y.img".to_owned()),
        ];
        let rpcbind = Some(Rpcbind::Register);
        let text = how_to_mount(&two, "0.0.0.0:4711".parse().unwrap(), rpcbind);
        assert!(text.contains("mountport=4711 HOST:/a DIR"));
        assert!(text.contains("serving y.img as /b"));
    }
}
