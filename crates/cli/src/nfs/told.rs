//! What the user of `finefs serve` is told: how clients mount.

use std::net::{IpAddr, SocketAddr};

use finefs_nfs::Rpcbind;

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
