//! URLs of exports, as the NBD URI specification has them.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode;

/// The port that the protocol has.
const PORT: u16 = 10809;

/// How long a server may be silent.
const TIMEOUT: Duration = Duration::from_secs(60);
/// What may be given for that at most: a day.
const TIMEOUT_SECONDS_MAX: u64 = 86_400;

/// Where a server is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Server {
    /// A name or address, and a port.
    Tcp(String, u16),
    /// A socket of this machine.
    Unix(PathBuf),
}

impl fmt::Display for Server {
    /// Without the export: a message names that already.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Server::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Server::Tcp(host, port) => write!(f, "{host}:{port}"),
            Server::Unix(path) => path.display().fmt(f),
        }
    }
}

/// How a connection is secured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Security {
    /// The name that the server's certificate must be for.
    pub host: String,
    /// Where certificates lie, if not where the machine has them.
    pub certificates: Option<PathBuf>,
}

/// An export of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NbdUri {
    /// As the user wrote it.
    pub text: String,
    /// Where the server is.
    pub server: Server,
    /// The name of the export; empty for the default one.
    pub export: String,
    /// How long the server may be silent while a reply is due.
    pub timeout: Duration,
    /// How long to try to connect again where the connection is lost; zero for not at all.
    pub reconnect_delay: Duration,
    /// How the connection is secured, if it is.
    pub security: Option<Security>,
}

impl NbdUri {
    /// Reads a URL; the error says what is wrong with it.
    pub fn parse(text: &OsStr) -> Result<NbdUri, String> {
        let text = text.to_str().ok_or("is no valid text")?;
        let (scheme, rest) = text.split_once("://").ok_or("is no URL")?;
        let (is_unix, is_secure) = match scheme {
            "nbd" => (false, false),
            "nbd+unix" => (true, false),
            "nbds" => (false, true),
            "nbds+unix" => (true, true),
            _ => return Err(format!("{scheme}:// is not known")),
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        let authority = authority.rsplit_once('@').map_or(authority, |pair| pair.1);
        let mut socket = None;
        let mut timeout = TIMEOUT;
        let mut reconnect_delay = Duration::ZERO;
        let (mut certificates, mut tls_host) = (None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("socket", value) => socket = Some(OsString::from_vec(decoded(value))),
                ("timeout", value) => timeout = timeout_of(value)?,
                ("reconnect-delay", value) => {
                    let seconds = value
                        .parse()
                        .map_err(|_| "reconnect-delay= takes seconds")?;
                    reconnect_delay = Duration::from_secs(seconds);
                }
                ("tls-certificates", value) => {
                    certificates = Some(PathBuf::from(OsString::from_vec(decoded(value))));
                }
                ("tls-hostname", value) => tls_host = Some(text_of(value, "tls-hostname")?),
                ("tls-psk-file", _) => {
                    return Err("tls-psk-file: finefs knows servers by certificates only".into());
                }
                // The specification wants others to be ignored.
                _ => {}
            }
        }
        let server = match (is_unix, socket) {
            (true, Some(path)) if !path.is_empty() && authority.is_empty() => {
                Server::Unix(PathBuf::from(path))
            }
            (true, Some(_)) => return Err("nbd+unix:///EXPORT?socket=PATH has no host".to_owned()),
            (true, None) => return Err("needs the socket: nbd+unix:///EXPORT?socket=PATH".into()),
            (false, _) => {
                let (host, port) = host_and_port(authority)?;
                Server::Tcp(host, port)
            }
        };
        let security = is_secure.then(|| Security {
            host: tls_host.unwrap_or_else(|| match &server {
                Server::Tcp(host, _) => host.clone(),
                Server::Unix(_) => "localhost".to_owned(),
            }),
            certificates,
        });
        let export = text_of(path, "the export")?;
        Ok(NbdUri {
            text: text.to_owned(),
            server,
            export,
            timeout,
            reconnect_delay,
            security,
        })
    }
}

fn timeout_of(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok();
    let seconds = seconds.filter(|seconds| (1..=TIMEOUT_SECONDS_MAX).contains(seconds));
    let seconds = seconds.ok_or("timeout= takes seconds, from 1 to 86400 (a day)")?;
    Ok(Duration::from_secs(seconds))
}

fn text_of(text: &str, what: &str) -> Result<String, String> {
    String::from_utf8(decoded(text)).map_err(|_| format!("{what} is no UTF-8"))
}

fn decoded(text: &str) -> Vec<u8> {
    percent_decode(text.as_bytes()).collect()
}

/// An address of IPv6 stands in brackets.
fn host_and_port(authority: &str) -> Result<(String, u16), String> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("has a [ without ]")?;
            (host, port.strip_prefix(':'))
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err("names no host".to_owned());
    }
    let port = match port {
        None | Some("") => PORT,
        Some(port) => port.parse().map_err(|_| format!("{port} is no port"))?,
    };
    Ok((text_of(host, "the host")?, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<NbdUri, String> {
        NbdUri::parse(OsStr::new(text))
    }

    fn tcp(host: &str, port: u16) -> Server {
        Server::Tcp(host.to_owned(), port)
    }

    #[test]
    fn urls_are_read() {
        let cases = [
            ("nbd://host", tcp("host", 10809), ""),
            ("nbd://host/", tcp("host", 10809), ""),
            ("nbd://host:1/a%20b", tcp("host", 1), "a b"),
            ("nbd://me@[::1]:7/a/b", tcp("::1", 7), "a/b"),
            ("nbd://[::1]", tcp("::1", 10809), ""),
            (
                "nbd+unix:///e?socket=/s%3Ft",
                Server::Unix("/s?t".into()),
                "e",
            ),
            ("nbd+unix://?socket=s&x=y", Server::Unix("s".into()), ""),
        ];
        for (text, server, export) in cases {
            let uri = parse(text).unwrap();
            assert_eq!(
                (uri.server, uri.export.as_str()),
                (server, export),
                "{text}"
            );
            assert_eq!(uri.timeout, TIMEOUT);
        }
        let quick = parse("nbd://host/?timeout=3").unwrap();
        assert_eq!(quick.timeout, Duration::from_secs(3));
        assert_eq!(quick.reconnect_delay, Duration::ZERO);
        let slow = parse("nbd://host/?timeout=86400").unwrap();
        assert_eq!(slow.timeout, Duration::from_secs(86_400));
        let patient = parse("nbd://host/?reconnect-delay=30").unwrap();
        assert_eq!(patient.reconnect_delay, Duration::from_secs(30));
    }

    #[test]
    fn certificates_are_for_a_host() {
        let security = |text: &str| parse(text).unwrap().security;
        assert_eq!(security("nbd://host/e?tls-certificates=d"), None);
        let of = |host: &str, certificates: Option<&str>| {
            Some(Security {
                host: host.to_owned(),
                certificates: certificates.map(PathBuf::from),
            })
        };
        assert_eq!(security("nbds://host/e"), of("host", None));
        assert_eq!(
            security("nbds://10.0.0.1/?tls-hostname=store&tls-certificates=/pki%20x"),
            of("store", Some("/pki x"))
        );
        assert_eq!(security("nbds+unix:///?socket=s"), of("localhost", None));
    }

    #[test]
    fn what_is_no_such_url_is_refused() {
        for text in [
            "nbd://",
            "nbd://:5/e",
            "nbd://host:port/",
            "nbd://[::1/",
            "nbd+unix:///e",
            "nbd+unix:///e?socket=",
            "nbd+unix://host/e?socket=/s",
            "nbds://host/e?tls-psk-file=f",
            "nbd://host/?timeout=0",
            "nbd://host/?timeout=86401",
            "nbd://host/?timeout=18446744073709551615",
            "nbd://host/?reconnect-delay=soon",
            "http://host/",
            "file",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
