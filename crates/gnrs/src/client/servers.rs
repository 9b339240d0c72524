use core::time::Duration;

use whimbrel_core::{PortId, RttEstimator, Time};

/// Silence after which a server counts as lost: longer than the queue of a thin link under load.
const LOST_AFTER: Duration = Duration::from_secs(5);

/// For so long at least a server takes a cookie after it has told it.
const COOKIE_AGE: Duration = Duration::from_secs(16);

/// The servers in order of preference, with their state.
#[derive(Debug, Default)]
pub(super) struct Servers(Vec<Server>);

#[derive(Debug)]
pub(super) struct Server {
    pub(super) port: PortId,
    pub(super) up: bool,
    /// Its address, in text.
    pub(super) peer: String,
    /// 0 before its first answer.
    pub(super) cookie: u64,
    pub(super) rtt: RttEstimator,
    /// When it last sent an expected frame.
    pub(super) heard_at: Option<Time>,
    /// When it was last found not to respond, for the choice of a server: others are asked at once.
    pub(super) silent_at: Option<Time>,
    /// When the first request was sent that it has not answered since it was last heard.
    pub(super) owes_since: Option<Time>,
    /// True once it has been silent for so long that no queue on the way explains it.
    pub(super) is_lost: bool,
}

/// One name server as a client sees it, for reports.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct NameServerStatus {
    /// Its address; empty before its port is up.
    pub peer: String,
    /// True if it has answered, its answers have not been missing for 5 s, and they were not false.
    pub answers: bool,
}

impl Server {
    /// Returns true if a cookie is of the session with this client that the server has had so far.
    pub(super) fn is_session_of(&self, cookie: u64) -> bool {
        self.cookie != 0 && self.cookie >> 32 == cookie >> 32
    }

    /// Returns true if the server takes the cookie that it told last.
    pub(super) fn has_fresh_cookie(&self, now: Time) -> bool {
        let told = self.heard_at.filter(|_| self.cookie != 0);
        told.is_some_and(|at| now.since(at) < COOKIE_AGE)
    }

    fn answers(&self) -> bool {
        self.up && self.heard_at.is_some() && !self.is_lost
    }

    /// Notes that it has not answered a request that was first sent at `asked_at`. Returns true if
    /// it is lost from now on.
    pub(super) fn note_silence(&mut self, now: Time, asked_at: Time) -> bool {
        self.silent_at = Some(now);
        let owes_since = *self.owes_since.get_or_insert(asked_at);
        now.since(owes_since) >= LOST_AFTER && self.lose()
    }

    /// Forgets its silence: nothing could reach it without a port.
    pub(super) fn begin_anew(&mut self) {
        self.silent_at = None;
        self.owes_since = None;
        self.is_lost = false;
    }

    /// Counts it as lost. Returns false if it is so already.
    pub(super) fn lose(&mut self) -> bool {
        !core::mem::replace(&mut self.is_lost, true)
    }

    /// Notes its answer. Returns true if it had been lost, or has not been heard before.
    pub(super) fn note_answer(&mut self, now: Time) -> bool {
        let first = self.heard_at.replace(now).is_none();
        self.owes_since = None;
        core::mem::take(&mut self.is_lost) || first
    }
}

impl Servers {
    pub(super) fn status(&self) -> Vec<NameServerStatus> {
        let status = |server: &Server| NameServerStatus {
            peer: server.peer.clone(),
            answers: server.answers(),
        };
        self.0.iter().map(status).collect()
    }

    pub(super) fn add(&mut self, port: PortId, rtt: RttEstimator) {
        if self.index_of(port).is_none() {
            self.0.push(Server {
                port,
                up: false,
                peer: String::new(),
                cookie: 0,
                rtt,
                heard_at: None,
                silent_at: None,
                owes_since: None,
                is_lost: false,
            });
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn index_of(&self, port: PortId) -> Option<usize> {
        self.0.iter().position(|server| server.port == port)
    }

    pub(super) fn get(&self, index: usize) -> Option<&Server> {
        self.0.get(index)
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Server> {
        self.0.get_mut(index)
    }

    /// Returns the server to query: the most preferred responsive one; if there is none, the one
    /// that has been silent for longest (it may have recovered); `None` if all are down.
    pub(super) fn choose(&self) -> Option<usize> {
        let up = || self.0.iter().enumerate().filter(|(_, server)| server.up);
        let answering = up().find(|(_, server)| server.silent_at.is_none());
        answering
            .or_else(|| up().min_by_key(|(_, server)| server.silent_at))
            .map(|(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ResolverConfig;

    #[test]
    fn the_most_preferred_that_answers_is_asked() {
        let mut servers = Servers::default();
        for port in 0..3 {
            servers.add(PortId(port), ResolverConfig::default().rtt());
        }
        assert_eq!(servers.choose(), None);
        servers.0.iter_mut().for_each(|server| server.up = true);
        assert_eq!(servers.choose(), Some(0));
        servers.0[0].silent_at = Some(Time::from_secs(2));
        assert_eq!(servers.choose(), Some(1));
        servers.0[1].up = false;
        servers.0[2].silent_at = Some(Time::from_secs(1));
        assert_eq!(servers.choose(), Some(2));
    }
}
