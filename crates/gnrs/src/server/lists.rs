//! All records, for a program on the server's machine: a backup, or a move to another store.

use whimbrel_core::{PortId, Source};

use super::Server;
use crate::record::RecordKey;
use crate::store::Store;
use crate::wire::{Code, Message};

/// The most records that fit into a frame.
const MOST: usize = 8;

impl<S: Store> Server<S> {
    /// Answers with the records after a key. Whoever asks from another machine is refused: nobody else
    /// is to list all names.
    pub(super) fn list(&mut self, port: PortId, id: u64, after: RecordKey) {
        let source = self.ports.get(&port).map(|state| state.source);
        if !source.is_some_and(is_here) || self.store.engine().is_some() {
            return self.refuse(port, id, Code::NotFound);
        }
        self.page.clear();
        for record in self.store.following(Some(after), MOST) {
            if !self.page.push(&record) {
                break;
            }
        }
        let page = core::mem::take(&mut self.page);
        let records = page.list();
        self.send(port, id, Code::Ok, Message::ListAnswer { records });
        self.page = page;
    }
}

/// Returns true for a loopback address, and for a carrier without addresses.
fn is_here(source: Source) -> bool {
    match source {
        // As `network_of` tells: the address itself, or the first half of one of IPv6.
        Source::Network(network) => network >> 88 == 127 || network == 0,
        Source::Port(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_core::network_of;

    #[test]
    fn only_loopback_addresses_are_here() {
        for (text, expected) in [
            ("127.0.0.1", true),
            ("127.9.0.1", true),
            ("::1", true),
            ("192.0.2.1", false),
            ("2001:db8::1", false),
            ("fe80::1", false),
            ("::ffff:127.0.0.1", true),
            ("::ffff:192.0.2.1", false),
        ] {
            let network = network_of(text.parse().unwrap());
            assert_eq!(is_here(Source::Network(network)), expected, "{text}");
        }
    }
}
