//! A network between the nodes of a cluster that can be cut: each node is reached at another address than
//! its own, over a relay that knows who calls.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct State {
    /// Addresses of nodes that are cut off.
    cut: BTreeSet<IpAddr>,
    /// Connections from nodes: caller, called, and both ends.
    open: Vec<(IpAddr, IpAddr, [TcpStream; 2])>,
}

#[derive(Default, Clone)]
pub struct Partition(Arc<Mutex<State>>);

/// True for a node's own address; clients call from the machine's.
fn is_node(caller: IpAddr) -> bool {
    caller != IpAddr::from([127, 0, 0, 1])
}

impl State {
    fn is_cut(&self, caller: IpAddr, called: IpAddr) -> bool {
        is_node(caller) && (self.cut.contains(&caller) || self.cut.contains(&called))
    }
}

impl Partition {
    /// Cuts these addresses of a node off from all other nodes, or ends that.
    pub fn cut_off(&self, addresses: [IpAddr; 2], is_cut: bool) {
        let mut state = self.0.lock().unwrap();
        for address in addresses {
            match is_cut {
                true => state.cut.insert(address),
                false => state.cut.remove(&address),
            };
        }
        let open = std::mem::take(&mut state.open);
        let (ended, open) = open
            .into_iter()
            .partition(|(caller, called, _)| state.is_cut(*caller, *called));
        state.open = open;
        let ended: Vec<(IpAddr, IpAddr, [TcpStream; 2])> = ended;
        for end in ended.iter().flat_map(|(_, _, ends)| ends) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    /// Passes on what comes to one address to another, on threads that end with the process.
    pub fn relay(&self, told: SocketAddr, own: SocketAddr) {
        let listener = TcpListener::bind(told).unwrap();
        let partition = self.clone();
        std::thread::spawn(move || {
            for caller in listener.incoming().flatten() {
                partition.pass_on(caller, told.ip(), own);
            }
        });
    }

    fn pass_on(&self, caller: TcpStream, told: IpAddr, own: SocketAddr) {
        let (Ok(from), Ok(called)) = (caller.peer_addr(), TcpStream::connect(own)) else {
            return;
        };
        let mut state = self.0.lock().unwrap();
        if state.is_cut(from.ip(), told) {
            return;
        }
        let both = || Ok::<_, std::io::Error>([caller.try_clone()?, called.try_clone()?]);
        let (Ok(ends), Ok([back, forth])) = (both(), both()) else {
            return;
        };
        if is_node(from.ip()) {
            state.open.push((from.ip(), told, ends));
        }
        drop(state);
        std::thread::spawn(move || copy(caller, forth));
        std::thread::spawn(move || copy(called, back));
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 16_384];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    for end in [from, to] {
        let _ = end.shutdown(Shutdown::Both);
    }
}
