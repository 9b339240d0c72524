//! The messages of the two ends: JSON, each in one message of a channel. They may be lost, come
//! twice or late, so that each can be said again without harm. Both ends listen on one channel: a
//! host knows the way back to who has sent on it. So an end whose host is the other one's as well
//! hears its own messages, which mean nothing to it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::Delivery;

use super::{CHANNEL, Plan};
use whimbrel_client::session::ProgramSession;

/// The version of the messages.
pub(super) const VERSION: u8 = 1;

/// A message about one test.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Letter {
    /// Chosen by the client, at random.
    pub(super) test: u64,
    #[serde(flatten)]
    pub(super) word: Word,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub(super) enum Word {
    /// Client: begin a test, or (again) it goes on.
    Start { version: u8, plan: Plan },
    /// Server: it has begun.
    Ready,
    /// Server: it does not begin.
    Refused { why: String },
    /// A receiver: name this lap.
    Want { stream: u16, lap: u32 },
    /// A sender: its name, whether it is the stream's last one, and its bytes.
    Lap {
        stream: u16,
        lap: u32,
        name: Guid,
        length: u64,
        last: bool,
    },
    /// Server: the bytes that each of its streams has received, and whether all of them are whole.
    Received { bytes: Vec<u64>, whole: bool },
    /// Client: it is over.
    End,
    /// Server: the bytes that each of its streams has received in all, and in what time.
    Result { bytes: Vec<u64>, seconds: f64 },
}

impl Letter {
    /// Sends it.
    pub(super) fn send(&self, destination: Guid, session: &mut ProgramSession) {
        let payload = serde_json::to_vec(self).unwrap_or_default();
        // Its length is within the bound of a message, for a plan within its own.
        let _ = session.message(destination, CHANNEL, Delivery::default(), payload.into());
    }

    /// Reads a message; `None` if it is none of a test.
    pub(super) fn read(payload: &Bytes) -> Option<Letter> {
        serde_json::from_slice(payload).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_as_documented() {
        let letter = Letter {
            test: 7,
            word: Word::Want { stream: 1, lap: 2 },
        };
        let text = r#"{"test":7,"say":"want","stream":1,"lap":2}"#;
        assert_eq!(serde_json::to_string(&letter).unwrap(), text);
        assert_eq!(Letter::read(&text.into()), Some(letter));
        assert_eq!(Letter::read(&Bytes::from_static(b"\xff{")), None);
    }
}
