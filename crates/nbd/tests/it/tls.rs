//! `nbds://` beside nbdkit: who is trusted, who is refused, and threads that share a connection.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use finefs_block::BlockDevice;
use finefs_nbd::{NbdDevice, NbdUri};

/// Certificates: of an authority, of a server named `store`, of a client, and of another authority.
struct Certificates {
    dir: tempfile::TempDir,
}

impl Certificates {
    fn new() -> Certificates {
        let dir = tempfile::tempdir().unwrap();
        let made = Certificates { dir };
        made.authority("ca");
        made.signed("server", "subjectAltName=DNS:store");
        made.signed("client", "extendedKeyUsage=clientAuth");
        made.authority("other");
        made
    }

    fn openssl(&self, arguments: &[&str]) {
        let mut openssl = Command::new("openssl");
        openssl.args(arguments).current_dir(self.dir.path());
        let output = openssl.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    fn authority(&self, name: &str) {
        let (key, cert) = (format!("{name}-key.pem"), format!("{name}-cert.pem"));
        let subject = format!("/CN={name}");
        let request = ["req", "-x509", "-nodes", "-newkey", "rsa:2048"];
        let made = ["-keyout", &key, "-out", &cert, "-subj", &subject];
        self.openssl(&[&request[..], &made[..]].concat());
    }

    fn signed(&self, name: &str, extension: &str) {
        let [key, request, cert] =
            ["key.pem", "csr", "cert.pem"].map(|end| format!("{name}-{end}"));
        let subject = format!("/CN={name}");
        let ask = ["req", "-new", "-nodes", "-newkey", "rsa:2048"];
        let made = ["-keyout", &key, "-out", &request, "-subj", &subject];
        self.openssl(&[&ask[..], &made[..]].concat());
        std::fs::write(self.dir.path().join("extensions"), extension).unwrap();
        let sign = ["x509", "-req", "-in", &request, "-out", &cert];
        let by = [
            "-CA",
            "ca-cert.pem",
            "-CAkey",
            "ca-key.pem",
            "-CAcreateserial",
        ];
        let more = ["-extfile", "extensions", "-days", "2"];
        self.openssl(&[&sign[..], &by[..], &more[..]].concat());
    }

    /// A directory with these files, under the names that a client looks for.
    fn of_client(&self, files: &[(&str, &str)]) -> PathBuf {
        let place = tempfile::Builder::new().tempdir_in(self.dir.path());
        let place = place.unwrap().keep();
        for (from, to) in files {
            std::fs::copy(self.dir.path().join(from), place.join(to)).unwrap();
        }
        place
    }
}

/// nbdkit with some memory.
struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    fn start(certificates: &Certificates, name: &str, options: &[&str]) -> Server {
        Server::start_with(certificates, name, options, &["memory", "8M"])
    }

    /// With this plugin; in the place of one that was killed.
    fn start_with(
        certificates: &Certificates,
        name: &str,
        options: &[&str],
        plugin: &[&str],
    ) -> Server {
        let socket = certificates.dir.path().join(name);
        let _ = std::fs::remove_file(&socket);
        let mut nbdkit = Command::new("nbdkit");
        nbdkit.args(["-f", "-U"]).arg(&socket).args(options);
        nbdkit
            .arg("--tls-certificates")
            .arg(certificates.dir.path());
        nbdkit.args(plugin).stderr(Stdio::null());
        let child = nbdkit.spawn().unwrap();
        let start = Instant::now();
        // It is there before somebody listens at it.
        while UnixStream::connect(&socket).is_err() {
            assert!(start.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(10));
        }
        Server { child, socket }
    }

    fn open(
        &self,
        scheme: &str,
        host: &str,
        certificates: Option<&Path>,
    ) -> Result<NbdDevice, String> {
        let mut url = OsString::from(format!("{scheme}:///?tls-hostname={host}&socket="));
        url.push(&self.socket);
        if let Some(dir) = certificates {
            url.push("&tls-certificates=");
            url.push(dir);
        }
        let uri = NbdUri::parse(&url).unwrap();
        NbdDevice::open(&uri, false).map_err(|error| error.to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn only_a_server_that_is_what_it_says_is_used() {
    let certificates = Certificates::new();
    let trusts = certificates.of_client(&[("ca-cert.pem", "ca-cert.pem")]);
    let others = certificates.of_client(&[("other-cert.pem", "ca-cert.pem")]);
    let server = Server::start(&certificates, "s", &["--tls=require"]);
    let fails = |scheme: &str, host: &str, dir: Option<&Path>, words: &str| {
        let error = server.open(scheme, host, dir).err().unwrap();
        assert!(error.contains(words), "{error}");
    };
    server.open("nbds+unix", "store", Some(&trusts)).unwrap();
    fails("nbd+unix", "store", None, "use nbds://");
    fails("nbds+unix", "another", Some(&trusts), "certificate");
    fails("nbds+unix", "store", Some(&others), "certificate");
    // Either this machine trusts nobody or nobody that it trusts has signed this one.
    fails("nbds+unix", "store", None, "certificate");
    fails(
        "nbds+unix",
        "store",
        Some("/nonexistent".as_ref()),
        "/nonexistent/ca-cert.pem",
    );
    let plain = Server::start(&certificates, "p", &["--tls=off"]);
    let error = plain
        .open("nbds+unix", "store", Some(&trusts))
        .err()
        .unwrap();
    assert!(error.contains("does not speak TLS"), "{error}");
}

/// Longer than what rustls takes at once.
#[test]
fn a_server_with_a_long_certificate_is_understood() {
    let certificates = Certificates::new();
    let names = (0..600).map(|number| format!("DNS:a-long-name-{number}.example.org"));
    let names: Vec<String> = names.collect();
    let names = format!("subjectAltName=DNS:store,{}", names.join(","));
    certificates.signed("server", &names);
    let trusts = certificates.of_client(&[("ca-cert.pem", "ca-cert.pem")]);
    let server = Server::start(&certificates, "s", &["--tls=require"]);
    let device = server.open("nbds+unix", "store&timeout=20", Some(&trusts));
    let device = device.unwrap();
    let mut block = [1; 512];
    device.read_at(0, &mut block).unwrap();
    assert_eq!(block, [0; 512]);
}

#[test]
fn a_server_can_ask_who_the_client_is() {
    let certificates = Certificates::new();
    let options = ["--tls=require", "--tls-verify-peer"];
    let server = Server::start(&certificates, "s", &options);
    let trusts = certificates.of_client(&[("ca-cert.pem", "ca-cert.pem")]);
    assert!(server.open("nbds+unix", "store", Some(&trusts)).is_err());
    let known = certificates.of_client(&[
        ("ca-cert.pem", "ca-cert.pem"),
        ("client-cert.pem", "client-cert.pem"),
        ("client-key.pem", "client-key.pem"),
    ]);
    server.open("nbds+unix", "store", Some(&known)).unwrap();
}

#[test]
fn threads_share_secured_connections() {
    let certificates = Certificates::new();
    let trusts = certificates.of_client(&[("ca-cert.pem", "ca-cert.pem")]);
    let server = Server::start(&certificates, "s", &["--tls=require"]);
    let device = server.open("nbds+unix", "store", Some(&trusts)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            let device = &device;
            scope.spawn(move || {
                let place = (thread << 20) as u64;
                for round in 0..4 {
                    // Long ones in both directions at once, and short ones between them.
                    let data: Vec<u8> = (0..1 << 20)
                        .map(|at| (at * 7 + thread + round) as u8)
                        .collect();
                    device.write_at(place, &data).unwrap();
                    device.flush().unwrap();
                    let mut back = vec![0; 1 << 20];
                    device.read_at(place, &mut back).unwrap();
                    assert!(back == data);
                }
            });
        }
    });
}

/// The certificates are not read again: who connects anew may be unable to open them.
#[test]
fn a_lost_connection_is_secured_again() {
    let certificates = Certificates::new();
    let trusts = certificates.of_client(&[("ca-cert.pem", "ca-cert.pem")]);
    let file = certificates.dir.path().join("file");
    std::fs::write(&file, vec![0; 1 << 20]).unwrap();
    let plugin = ["file", file.to_str().unwrap(), "cache=writeback"];
    let options = ["--tls=require", "--filter=cache"];
    let start = || Server::start_with(&certificates, "s", &options, &plugin);
    let mut server = start();
    let device = server
        .open("nbds+unix", "store&reconnect-delay=20", Some(&trusts))
        .unwrap();
    std::fs::remove_dir_all(&trusts).unwrap();
    for round in 0..5_u8 {
        let place = u64::from(round) << 16;
        device.write_at(place, &[round + 1; 5000]).unwrap();
        drop(server);
        server = start();
        let mut back = [0; 5000];
        device.read_at(place, &mut back).unwrap();
        assert_eq!(back, [round + 1; 5000]);
    }
    device.flush().unwrap();
    drop(server);
    let bytes = std::fs::read(&file).unwrap();
    for round in 0..5_u8 {
        let start = usize::from(round) << 16;
        assert_eq!(bytes[start..start + 5000], [round + 1; 5000]);
    }
}
