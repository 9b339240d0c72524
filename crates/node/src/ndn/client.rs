//! How a program runs: its application in a loop, with one face to a forwarder.

use std::ops::ControlFlow;
use std::time::Duration;

use whimbrel_core::{OpenRefusal, SeededRng, Time};
use whimbrel_io::{Clock, EventLoop, IoError, LoopHandle};
use whimbrel_transport::Application;

use super::open::opened_limits;
use super::program::ProgramFace;
pub use super::program::Told;
pub use super::uplink::{CanonicalError, Uplink, UplinkError, canonical};
use crate::run::{StartError, random_number};

type ProgramLoop<A> = EventLoop<ProgramFace<A>>;

/// Why a program does not run.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No program answers there.
    #[error(
        "no forwarder answers on {uplink} ({source}); start one with `whimbrel router run`, or name another by --transport or \
         NDN_CLIENT_TRANSPORT"
    )]
    Nobody {
        /// Where it should be.
        uplink: Uplink,
        /// The system's answer.
        source: OpenRefusal,
    },
    /// The socket belongs to another user.
    #[error("{source}")]
    NotPermitted {
        /// What the socket says.
        source: OpenRefusal,
    },
    /// The loop does not run.
    #[error(transparent)]
    Loop(IoError),
    /// No random bytes.
    #[error(transparent)]
    System(#[from] StartError),
}

/// How an application is run.
#[derive(Debug)]
pub enum End<T> {
    /// The program had enough.
    Done(T),
    /// Ctrl-C, or SIGTERM.
    Interrupted,
}

/// An application, and a loop that runs it.
pub struct Client<A: Application> {
    event_loop: ProgramLoop<A>,
    uplink: Uplink,
}

/// Randomness for one application of this process.
pub fn seeded() -> Result<SeededRng, ClientError> {
    Ok(SeededRng::new(random_number()?))
}

impl<A: Application + 'static> Client<A> {
    /// An application that calls the forwarder at `uplink` as soon as it runs, and again each second
    /// while it is away; [`Told`] says what came of it. Of UDP nothing is known before a packet
    /// comes back.
    pub fn new(uplink: Uplink, clock: Clock, application: A) -> Result<Client<A>, ClientError> {
        let endpoint = uplink.endpoint();
        let face = match &uplink {
            Uplink::Udp(_) => ProgramFace::on_datagrams(endpoint, application, seeded()?),
            _ => ProgramFace::on_stream(endpoint, application),
        };
        let mut event_loop = EventLoop::new(clock, face).map_err(ClientError::Loop)?;
        event_loop.set_opened_limits(opened_limits());
        event_loop.follow_wall_clock(|face: &mut ProgramFace<A>, _, wall| {
            face.application_mut().handle_wall_clock(wall)
        });
        Ok(Client { event_loop, uplink })
    }

    /// Runs until `on_event` breaks, or until Ctrl-C or SIGTERM.
    pub fn run<T>(
        &mut self,
        mut on_event: impl FnMut(&mut A, Time, Told<A::Event>) -> ControlFlow<T>,
    ) -> Result<End<T>, ClientError> {
        self.event_loop
            .stop_on_signals()
            .map_err(ClientError::Loop)?;
        let handle = self.event_loop.handle();
        let mut end = None;
        self.event_loop
            .run(|face, now, told| {
                if end.is_none()
                    && let ControlFlow::Break(value) = on_event(face.application_mut(), now, told)
                {
                    end = Some(value);
                    handle.stop();
                }
            })
            .map_err(ClientError::Loop)?;
        Ok(end.map_or(End::Interrupted, End::Done))
    }

    /// One round of at most `wait`, for programs that ask and wait for the answer.
    pub fn step(
        &mut self,
        wait: Duration,
        mut on_event: impl FnMut(&mut A, Time, Told<A::Event>),
    ) -> Result<(), ClientError> {
        self.event_loop
            .step(wait, |face, now, told| {
                on_event(face.application_mut(), now, told)
            })
            .map_err(ClientError::Loop)
    }

    /// How other threads reach the application while it runs.
    pub fn poster(&self) -> Poster<A> {
        Poster(self.event_loop.handle())
    }

    /// The application.
    pub fn application(&self) -> &A {
        self.event_loop.machine().application()
    }

    /// The application, to be told something between rounds.
    pub fn application_mut(&mut self) -> &mut A {
        self.event_loop.machine_mut().application_mut()
    }

    /// Where its forwarder is.
    pub fn uplink(&self) -> &Uplink {
        &self.uplink
    }

    /// What this process calls time.
    pub fn clock(&self) -> Clock {
        self.event_loop.clock()
    }

    /// The error for a forwarder that was told to be unreachable.
    pub fn nobody(&self, source: OpenRefusal) -> ClientError {
        failed(&self.uplink, source)
    }
}

/// Reaches a running application from another thread.
pub struct Poster<A: Application>(LoopHandle<ProgramFace<A>>);

impl<A: Application + 'static> Poster<A> {
    /// Runs `task` with the application on the thread that runs it; not at all if it has ended.
    pub fn post(&self, task: impl FnOnce(&mut A, Time) + Send + 'static) {
        let _ = self
            .0
            .post(move |face, now| task(face.application_mut(), now));
    }
}

/// The error for a forwarder that cannot be reached.
pub fn failed(uplink: &Uplink, source: OpenRefusal) -> ClientError {
    match source {
        OpenRefusal::NotPermitted(_) => ClientError::NotPermitted { source },
        source => ClientError::Nobody {
            uplink: uplink.clone(),
            source,
        },
    }
}
