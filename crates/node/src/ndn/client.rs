//! A program's application in a loop, with one face to a forwarder.

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

/// The reason why a program does not run.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No program answers.
    #[error(
        "no forwarder answers on {uplink} ({source}); start one with `whimbrel router run`, or name another by --transport or \
         NDN_CLIENT_TRANSPORT"
    )]
    Nobody {
        /// The place of the forwarder.
        uplink: Uplink,
        /// The system's error.
        source: OpenRefusal,
    },
    /// The socket belongs to another user.
    #[error("{source}")]
    NotPermitted {
        /// The socket's error.
        source: OpenRefusal,
    },
    /// The loop has failed.
    #[error(transparent)]
    Loop(IoError),
    /// No random bytes are available.
    #[error(transparent)]
    System(#[from] StartError),
}

/// The end of an application's run.
#[derive(Debug)]
pub enum End<T> {
    /// The program has finished.
    Done(T),
    /// Ctrl-C, or SIGTERM.
    Interrupted,
}

/// An application, and the loop that runs it.
pub struct Client<A: Application> {
    event_loop: ProgramLoop<A>,
    uplink: Uplink,
}

/// Returns randomness for one application of this process.
pub fn seeded() -> Result<SeededRng, ClientError> {
    Ok(SeededRng::new(random_number()?))
}

impl<A: Application + 'static> Client<A> {
    /// Returns a client whose application connects to the forwarder at `uplink` as soon as it runs,
    /// and again each second while it is away; [`Told`] reports the outcome. Over UDP nothing is
    /// known before a packet comes back.
    pub fn new(uplink: Uplink, clock: Clock, application: A) -> Result<Client<A>, ClientError> {
        let endpoint = uplink.endpoint();
        let face = match &uplink {
            Uplink::Udp(_) => ProgramFace::on_datagrams(endpoint, application, seeded()?),
            _ => ProgramFace::on_stream(endpoint, application),
        };
        let mut event_loop = EventLoop::new(clock, face).map_err(ClientError::Loop)?;
        event_loop.sockets().set_opened_limits(opened_limits());
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

    /// Runs one round of at most `wait`, for programs that wait for the answers to their requests.
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

    /// Returns access to the application for other threads.
    pub fn poster(&self) -> Poster<A> {
        Poster(self.event_loop.handle())
    }

    /// Returns the application.
    pub fn application(&self) -> &A {
        self.event_loop.machine().application()
    }

    /// Returns the application, for changes between rounds.
    pub fn application_mut(&mut self) -> &mut A {
        self.event_loop.machine_mut().application_mut()
    }

    /// Returns the place of its forwarder.
    pub fn uplink(&self) -> &Uplink {
        &self.uplink
    }

    /// Returns the clock of this process.
    pub fn clock(&self) -> Clock {
        self.event_loop.clock()
    }

    /// Returns the error for a forwarder that was reported to be unreachable.
    pub fn nobody(&self, source: OpenRefusal) -> ClientError {
        failed(&self.uplink, source)
    }
}

/// Reaches a running application from another thread.
pub struct Poster<A: Application>(LoopHandle<ProgramFace<A>>);

impl<A: Application + 'static> Poster<A> {
    /// Runs `task` with the application on its thread; does nothing if the application has ended.
    pub fn post(&self, task: impl FnOnce(&mut A, Time) + Send + 'static) {
        let _ = self
            .0
            .post(move |face, now| task(face.application_mut(), now));
    }
}

/// Returns the error for a forwarder that cannot be reached.
pub fn failed(uplink: &Uplink, source: OpenRefusal) -> ClientError {
    match source {
        OpenRefusal::NotPermitted(_) => ClientError::NotPermitted { source },
        source => ClientError::Nobody {
            uplink: uplink.clone(),
            source,
        },
    }
}
