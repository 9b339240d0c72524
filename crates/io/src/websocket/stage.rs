//! The stage of a WebSocket connection: handshake, messages, over.

use tungstenite::client::IntoClientRequest;
use tungstenite::handshake::client::ClientHandshake;
use tungstenite::handshake::server::{ServerHandshake, write_response};
use tungstenite::handshake::{HandshakeError, HandshakeRole, MidHandshake};
use tungstenite::http::Response;
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Error, WebSocket};

use super::WebSocketLimits;
use super::origin::OriginCheck;
use super::pipe::Pipe;
use crate::stream::Outbox;

/// The initial buffer that `tungstenite` allocates for each connection, bytes.
const PARSE_BUFFER: usize = 16 << 10;

/// The stage of a connection.
#[derive(Debug)]
pub(super) enum Stage {
    Serving(MidHandshake<ServerHandshake<Pipe, OriginCheck>>),
    Calling(MidHandshake<ClientHandshake<Pipe>>),
    Open(Box<WebSocket<Pipe>>),
    /// The client was refused; the response is in the pipe's outbox.
    Refused(Pipe),
    Over,
}

fn config(limits: &WebSocketLimits) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(PARSE_BUFFER)
        .write_buffer_size(0)
        .max_message_size(Some(limits.max_frame))
        .max_frame_size(Some(limits.max_frame))
}

impl Stage {
    /// Waits for a client's handshake.
    pub(super) fn serve(limits: &WebSocketLimits, check: OriginCheck) -> Stage {
        Stage::Serving(ServerHandshake::start(
            Pipe::default(),
            check,
            Some(config(limits)),
        ))
    }

    /// Requests the resource of `uri` from a server.
    pub(super) fn call(uri: &str, limits: &WebSocketLimits) -> Result<Stage, Error> {
        let request = uri.into_client_request()?;
        Ok(Stage::Calling(ClientHandshake::start(
            Pipe::default(),
            request,
            Some(config(limits)),
        )?))
    }

    /// Continues the handshake as far as the input allows. If it fails, the stage becomes
    /// [`Stage::Refused`] or [`Stage::Over`].
    pub(super) fn shake(&mut self) -> Result<(), Error> {
        *self = match std::mem::replace(self, Stage::Over) {
            Stage::Serving(handshake) => match handshake.handshake() {
                Ok(socket) => Stage::Open(Box::new(socket)),
                Err(HandshakeError::Interrupted(handshake)) => Stage::Serving(handshake),
                Err(HandshakeError::Failure(error)) => {
                    // The library drops its pipe and the response in it.
                    if let Error::Http(response) = &error {
                        *self = Stage::Refused(answer(response));
                    }
                    return Err(error);
                }
            },
            Stage::Calling(handshake) => match handshake.handshake() {
                Ok((socket, _)) => Stage::Open(Box::new(socket)),
                Err(HandshakeError::Interrupted(handshake)) => Stage::Calling(handshake),
                Err(HandshakeError::Failure(error)) => return Err(error),
            },
            stage => stage,
        };
        Ok(())
    }

    pub(super) fn pipe(&mut self) -> Option<&mut Pipe> {
        match self {
            Stage::Serving(handshake) => Some(pipe_of(handshake)),
            Stage::Calling(handshake) => Some(pipe_of(handshake)),
            Stage::Open(socket) => Some(socket.get_mut()),
            Stage::Refused(pipe) => Some(pipe),
            Stage::Over => None,
        }
    }

    pub(super) fn outbox(&self) -> Option<&Outbox> {
        match self {
            Stage::Serving(handshake) => Some(&handshake.get_ref().get_ref().outbox),
            Stage::Calling(handshake) => Some(&handshake.get_ref().get_ref().outbox),
            Stage::Open(socket) => Some(&socket.get_ref().outbox),
            Stage::Refused(pipe) => Some(&pipe.outbox),
            Stage::Over => None,
        }
    }
}

fn answer(response: &Response<Option<Vec<u8>>>) -> Pipe {
    let mut pipe = Pipe::default();
    // The headers are this crate's own, and a pipe accepts everything.
    if write_response(&mut pipe, response).is_ok() {
        let body = response.body().as_deref().unwrap_or_default();
        pipe.outbox.bytes().extend_from_slice(body);
    }
    pipe
}

fn pipe_of<R: HandshakeRole<InternalStream = Pipe>>(handshake: &mut MidHandshake<R>) -> &mut Pipe {
    handshake.get_mut().get_mut()
}
