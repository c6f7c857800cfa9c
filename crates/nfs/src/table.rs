//! The connections that there are, and the client machines that they come from.

use std::collections::HashMap;
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use finefs_locks::Mutex;

use crate::classes;
use crate::connection::{Client, Connection};

/// Client machines that are remembered with their replies.
const CLIENTS_MAX: usize = 1024;
/// Connections from one address. (Clients open up to 16 with `nconnect`.)
const OF_CLIENT_MAX: usize = 64;

/// A client machine that is connected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectedClient {
    /// Its address.
    pub address: IpAddr,
    /// By so many connections.
    pub connections: usize,
}

/// Fixed places for connections: a thread finds one by its number, which epoll tells.
pub(crate) struct Table {
    places: Box<[Mutex<Option<Arc<Connection>>>]>,
    clients: Mutex<HashMap<IpAddr, Arc<Client>>>,
    /// Bytes that wait for clients to read on.
    waiting_bytes: Arc<AtomicUsize>,
    /// Where the last one was put. Only who accepts connections reads and writes it.
    last: AtomicUsize,
}

/// Why a connection is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Full {
    /// The client has too many.
    Client,
    /// There are too many.
    Server,
}

impl Table {
    pub(crate) fn new(connections_max: usize) -> Table {
        let places = (0..connections_max).map(|_| Mutex::new(&classes::PLACE, None));
        Table {
            places: places.collect(),
            clients: Mutex::new(&classes::CLIENTS, HashMap::new()),
            waiting_bytes: Arc::new(AtomicUsize::new(0)),
            last: AtomicUsize::new(0),
        }
    }

    /// Takes a connection in; gives its place.
    pub(crate) fn add(
        &self,
        stream: TcpStream,
        address: IpAddr,
    ) -> Result<(usize, Arc<Connection>), Full> {
        let client = self.client(address);
        if client.connections.load(Ordering::Acquire) >= OF_CLIENT_MAX {
            return Err(Full::Client);
        }
        let count = self.places.len();
        let last = self.last.load(Ordering::Relaxed);
        let free = |place: &usize| self.places[*place].lock().is_none();
        let place = (1..=count).map(|step| (last + step) % count).find(free);
        let place = place.ok_or(Full::Server)?;
        self.last.store(place, Ordering::Relaxed);
        let connection = Arc::new(Connection::new(stream, client));
        *self.places[place].lock() = Some(Arc::clone(&connection));
        Ok((place, connection))
    }

    fn client(&self, address: IpAddr) -> Arc<Client> {
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(&address) {
            return Arc::clone(client);
        }
        if clients.len() >= CLIENTS_MAX {
            let is_gone = |client: &&Arc<Client>| client.connections.load(Ordering::Acquire) == 0;
            let oldest = clients.values().filter(is_gone);
            let oldest = oldest.max_by_key(|client| client.used.elapsed());
            if let Some(oldest) = oldest.map(|client| client.address) {
                clients.remove(&oldest);
            }
        }
        let client = Arc::new(Client::new(address, Arc::clone(&self.waiting_bytes)));
        clients.insert(address, Arc::clone(&client));
        client
    }

    /// The client machines that are connected, by their addresses.
    pub(crate) fn clients(&self) -> Vec<ConnectedClient> {
        let clients = self.clients.lock();
        let connected = clients.values().map(|client| ConnectedClient {
            address: client.address,
            connections: client.connections.load(Ordering::Acquire),
        });
        let mut connected: Vec<_> = connected.filter(|it| it.connections > 0).collect();
        drop(clients);
        connected.sort_by_key(|client| client.address);
        connected
    }

    /// The connection at a place.
    pub(crate) fn get(&self, place: usize) -> Option<Arc<Connection>> {
        self.places.get(place)?.lock().clone()
    }

    /// Takes a connection out.
    pub(crate) fn remove(&self, place: usize, connection: &Arc<Connection>) {
        let mut there = self.places[place].lock();
        if there
            .as_ref()
            .is_some_and(|there| Arc::ptr_eq(there, connection))
        {
            let taken = there.take();
            drop(there);
            drop(taken);
        }
    }

    /// All places.
    pub(crate) fn places(&self) -> std::ops::Range<usize> {
        0..self.places.len()
    }
}
