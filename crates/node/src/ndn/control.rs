//! Management of a forwarder by a program: requests that wait for their answers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use whimbrel_core::{Deadline, OpenRefusal, SeededRng, Time};
use whimbrel_io::Clock;
use whimbrel_ndn_mgmt::client::{
    ClientError as AnswerError, DatasetFetch, DatasetItem, Stamps, Target, command, decode_items,
    response,
};
use whimbrel_ndn_mgmt::{ControlParameters, ControlResponse, FaceQueryFilter, FaceStatus};
use whimbrel_ndn_packet::{DecodeError, InterestRef, LpPacket, NackReason};
use whimbrel_transport::application::{Arrival, Outgoing};
use whimbrel_transport::{Application, FaceNumber, SharedSigner};

use super::client::{Client, ClientError, Told, Uplink, seeded};

/// Time to wait for one answer: forwarders open TCP faces before they answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time to wait for a part of a dataset before it is requested again.
const PART: Duration = Duration::from_secs(2);

/// The reason why management did not do what was requested.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// There is no forwarder.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It has closed the connection.
    #[error("the forwarder on {0} closed the connection")]
    Gone(Uplink),
    /// It does not answer.
    #[error(
        "the forwarder on {uplink} did not answer {asked} within {} s; is its management enabled?", PATIENCE.as_secs()
    )]
    Silent {
        /// Where it is.
        uplink: Uplink,
        /// The request.
        asked: String,
    },
    /// It does not know the request.
    #[error("the forwarder answered {asked} with a Nack ({reason:?}); is its management enabled?")]
    Nack {
        /// The request.
        asked: String,
        /// The reason.
        reason: NackReason,
    },
    /// It refused.
    #[error("the forwarder refused {asked}: {response}")]
    Refused {
        /// The request.
        asked: String,
        /// Its answer.
        response: ControlResponse,
    },
    /// Its answer cannot be read.
    #[error("the forwarder's answer to {asked} cannot be read: {reason}")]
    Malformed {
        /// The request.
        asked: String,
        /// The fault.
        reason: String,
    },
}

/// A connection by which a forwarder is managed.
pub struct Control {
    client: Client<Asker>,
    signer: SharedSigner,
    stamps: Stamps,
    rng: SeededRng,
}

impl Control {
    /// Connects to the forwarder at `uplink`; `signer` signs the commands.
    pub fn new(uplink: Uplink, signer: SharedSigner) -> Result<Control, ControlError> {
        let client = Client::new(uplink, Clock::start(), Asker::default())?;
        Ok(Control {
            client,
            signer,
            stamps: Stamps::default(),
            rng: seeded()?,
        })
    }

    /// Executes a command. Returns the parameters that hold now.
    pub fn command(
        &mut self,
        module: &str,
        verb: &str,
        parameters: &ControlParameters,
    ) -> Result<ControlParameters, ControlError> {
        let asked = format!("{module}/{verb}");
        let clock = self.client.clock();
        let unix_millis = clock.wall_clock().unix_millis(clock.now());
        let stamp = self
            .stamps
            .next(unix_millis, self.rng.next_word().to_be_bytes());
        let signer = Arc::clone(&self.signer);
        let interest = command(Target::Local, module, verb, parameters, &*signer, stamp);
        let data = self.exchange(&asked, interest)?;
        let malformed = |reason: String| ControlError::Malformed {
            asked: asked.clone(),
            reason,
        };
        let response = response(&data).map_err(|error| malformed(error.to_string()))?;
        if !response.is_success() {
            return Err(ControlError::Refused { asked, response });
        }
        let answered = response
            .parameters()
            .map_err(|error| malformed(error.to_string()))?;
        Ok(answered.unwrap_or_default())
    }

    /// Returns the items of a dataset.
    pub fn list<T: DatasetItem>(
        &mut self,
        module: &str,
        dataset: &str,
    ) -> Result<Vec<T>, ControlError> {
        let asked = format!("{module}/{dataset}");
        let content = self.content(module, dataset)?;
        items(&asked, &content)
    }

    /// Returns the faces that match a filter.
    pub fn faces(&mut self, filter: &FaceQueryFilter) -> Result<Vec<FaceStatus>, ControlError> {
        if *filter == FaceQueryFilter::default() {
            return self.list("faces", "list");
        }
        let content = self.fetch(
            "faces/query",
            DatasetFetch::face_query(Target::Local, filter),
        )?;
        items("faces/query", &content)
    }

    /// Returns the whole content of a dataset.
    pub fn content(&mut self, module: &str, dataset: &str) -> Result<Vec<u8>, ControlError> {
        let fetch = DatasetFetch::new(Target::Local.name(module, dataset));
        self.fetch(&format!("{module}/{dataset}"), fetch)
    }

    fn fetch(&mut self, asked: &str, mut fetch: DatasetFetch) -> Result<Vec<u8>, ControlError> {
        let until = Instant::now() + PATIENCE;
        loop {
            while let Some(interest) =
                fetch.poll_request((self.rng.next_word() as u32).to_be_bytes())
            {
                self.client.application_mut().send(interest);
            }
            let Some(data) = self.answer(asked, PART)? else {
                if Instant::now() >= until {
                    return Err(self.silent(asked));
                }
                fetch.handle_timeout();
                continue;
            };
            match fetch.handle_data(&data) {
                Ok(Some(content)) => return Ok(content),
                // The answer to an earlier request.
                Ok(None) | Err(AnswerError::Name(_)) => {}
                Err(AnswerError::Refused(response)) => {
                    return Err(ControlError::Refused {
                        asked: asked.to_owned(),
                        response,
                    });
                }
                Err(error) => {
                    return Err(ControlError::Malformed {
                        asked: asked.to_owned(),
                        reason: error.to_string(),
                    });
                }
            }
        }
    }

    fn exchange(&mut self, asked: &str, interest: Vec<u8>) -> Result<Bytes, ControlError> {
        let name = InterestRef::decode(&interest)
            .map(|interest| interest.name.to_name())
            .map_err(|error: DecodeError| ControlError::Malformed {
                asked: asked.into(),
                reason: error.to_string(),
            })?;
        self.client.application_mut().send(interest);
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Some(data) = self.answer(asked, left)? else {
                return Err(self.silent(asked));
            };
            let answers = whimbrel_ndn_packet::DataRef::decode(&data)
                .is_ok_and(|data| name.as_ref().is_prefix_of(data.name));
            if answers {
                return Ok(data);
            }
        }
    }

    /// Returns the next Data that comes within `patience`.
    fn answer(&mut self, asked: &str, patience: Duration) -> Result<Option<Bytes>, ControlError> {
        let until = Instant::now() + patience;
        loop {
            if let Some(answer) = self.client.application_mut().answers.pop_front() {
                return match answer {
                    Answer::Data(data) => Ok(Some(data)),
                    Answer::Nack(reason) => Err(ControlError::Nack {
                        asked: asked.to_owned(),
                        reason,
                    }),
                };
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let mut lost: Option<Option<OpenRefusal>> = None;
            self.client.step(left, |_, _, told| match told {
                Told::Gone => lost = Some(None),
                Told::Unreachable(error) => lost = Some(Some(error)),
                Told::Connected => {}
                Told::Event(never) => match never {},
            })?;
            match lost {
                Some(Some(error)) => return Err(self.client.nobody(error).into()),
                Some(None) => return Err(ControlError::Gone(self.client.uplink().clone())),
                None => {}
            }
        }
    }

    fn silent(&self, asked: &str) -> ControlError {
        ControlError::Silent {
            uplink: self.client.uplink().clone(),
            asked: asked.to_owned(),
        }
    }
}

fn items<T: DatasetItem>(asked: &str, content: &[u8]) -> Result<Vec<T>, ControlError> {
    decode_items(content).map_err(|error| ControlError::Malformed {
        asked: asked.to_owned(),
        reason: error.to_string(),
    })
}

enum Answer {
    Data(Bytes),
    Nack(NackReason),
}

/// Sends packets, and keeps the answers until they are requested.
#[derive(Default)]
struct Asker {
    outbox: VecDeque<Bytes>,
    answers: VecDeque<Answer>,
    up: bool,
}

/// Bound of the answers that wait; further ones are dropped.
const MOST_ANSWERS: usize = 1024;

impl Asker {
    fn send(&mut self, interest: Vec<u8>) {
        self.outbox.push_back(interest.into());
    }
}

impl Application for Asker {
    type Event = std::convert::Infallible;

    fn handle_face(&mut self, _now: Time, _face: FaceNumber, up: bool) {
        self.up = up;
    }

    fn handle_packet(&mut self, _now: Time, _face: FaceNumber, packet: &LpPacket<'_>) {
        if self.answers.len() >= MOST_ANSWERS {
            return;
        }
        match Arrival::decode(packet) {
            Ok(Arrival::Data(data)) => {
                self.answers
                    .push_back(Answer::Data(Bytes::copy_from_slice(data.wire)));
            }
            Ok(Arrival::Nack(reason, _)) => self.answers.push_back(Answer::Nack(reason)),
            Ok(Arrival::Interest(_)) | Err(_) => {}
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_packet(&mut self, _now: Time, _face: FaceNumber) -> Option<Outgoing> {
        if !self.up {
            return None;
        }
        self.outbox.pop_front().map(|interest| (interest, None))
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}
