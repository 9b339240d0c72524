//! Bodies between hyper and a stream.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

use whimbrel_core::Guid;

use crate::plane::{PlaneReader, PlaneStream, PlaneWriter, StreamPlane};
use crate::wire::{BodyFrame, FRAME_HEAD, MAX_PIECE, WireFault};

/// Pieces of a body that wait for their reader.
const WAITING: usize = 4;
/// A sender that has bytes waits this long for more of them, so that small pieces share a message.
const GATHER: Duration = Duration::from_millis(2);
/// Bytes that are gathered at most.
const GATHERED: usize = 64 << 10;

/// A content whose stream has ended is given up when this long passes without a piece: routers may hold the rest.
const ORPHANED: Duration = Duration::from_secs(10);

/// Errors of a body, as hyper passes them on.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// A body whose pieces another task brings.
#[derive(Debug)]
pub struct PipedBody {
    pieces: mpsc::Receiver<Result<Frame<Bytes>, BodyError>>,
    /// Why there are no further pieces.
    failed: Option<BodyError>,
    /// Bytes, if they are known.
    length: Option<u64>,
}

/// The other end of a [`PipedBody`].
pub type PipedSender = mpsc::Sender<Result<Frame<Bytes>, BodyError>>;

impl PipedBody {
    /// Returns the next piece.
    pub async fn next(&mut self) -> Option<Result<Frame<Bytes>, BodyError>> {
        self.pieces.recv().await
    }
}

/// Returns a body, and the end that fills it. A sender that is dropped ends the body.
pub fn piped(length: Option<u64>) -> (PipedSender, PipedBody) {
    let (sender, pieces) = mpsc::channel(WAITING);
    let body = PipedBody {
        pieces,
        failed: None,
        length,
    };
    (sender, body)
}

impl Body for PipedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let piece = self.pieces.poll_recv(context);
        if let Poll::Ready(Some(Err(error))) = piece {
            // Hyper forgets what it has not written when a body fails; it writes when there is nothing to read.
            self.failed = Some(error);
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        piece
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        match self.length {
            Some(length) => hyper::body::SizeHint::with_exact(length),
            None => hyper::body::SizeHint::default(),
        }
    }
}

/// Returns the length that a head states, if it does so once and clearly.
pub fn stated_length(headers: &HeaderMap) -> Option<u64> {
    let mut values = headers.get_all(http::header::CONTENT_LENGTH).iter();
    let length = values.next()?.to_str().ok()?.parse().ok()?;
    values.next().is_none().then_some(length)
}

/// Reads one frame of a body.
pub async fn read_frame(stream: &mut PlaneReader) -> io::Result<BodyFrame> {
    let mut head = [0; FRAME_HEAD];
    stream.read_exact(&mut head).await?;
    let length = BodyFrame::length(head).map_err(invalid)?;
    let mut content = vec![0; length];
    stream.read_exact(&mut content).await?;
    BodyFrame::decode(head[0], content.into()).map_err(invalid)
}

/// Reads bytes after their length (4 bytes).
pub async fn read_head(stream: &mut PlaneReader) -> io::Result<Bytes> {
    let length = stream.read_u32().await? as usize;
    if length > crate::wire::MAX_HEAD {
        return Err(invalid(WireFault::TooLong("a head")));
    }
    let mut head = vec![0; length];
    stream.read_exact(&mut head).await?;
    Ok(head.into())
}

/// How a body comes that is a content.
#[derive(Debug)]
pub struct ContentWay<'a> {
    plane: &'a StreamPlane,
    /// Asks for the rest on the stream.
    writer: &'a mut PlaneWriter,
    is_used: bool,
}

impl<'a> ContentWay<'a> {
    /// Returns a way for one body.
    pub fn new(plane: &'a StreamPlane, writer: &'a mut PlaneWriter) -> ContentWay<'a> {
        ContentWay {
            plane,
            writer,
            is_used: false,
        }
    }

    /// Passes a content on. Returns false if it cannot be had, and the rest comes on the stream. After the end of
    /// the stream, only pieces that routers hold can come.
    async fn receive(
        &mut self,
        stream: &PlaneStream,
        name: Guid,
        length: u64,
        body: &PipedSender,
    ) -> io::Result<bool> {
        let mut fetch = self.plane.fetch(name, length);
        let (mut passed, mut is_orphaned) = (0u64, false);
        loop {
            let next = tokio::select! {
                next = fetch.next() => next,
                () = body.closed() => return Err(io::ErrorKind::BrokenPipe.into()),
                () = stream.until_cut(), if !is_orphaned => {
                    is_orphaned = true;
                    continue;
                }
                () = tokio::time::sleep(ORPHANED), if is_orphaned => {
                    return Err(io::Error::other("the server side no longer has the body"));
                }
            };
            match next {
                Ok(Some(data)) => {
                    passed += data.len() as u64;
                    let sent = body.send(Ok(Frame::data(data))).await;
                    sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
                }
                Ok(None) => return Ok(true),
                Err(error) => {
                    tracing::debug!(%name, %error, "the rest of a body comes on the stream");
                    self.writer
                        .queue(Bytes::copy_from_slice(&passed.to_be_bytes()));
                    self.writer.send().await?;
                    return Ok(false);
                }
            }
        }
    }
}

/// Passes a stream's body on. An error of the stream is one of the body.
pub async fn receive(
    stream: &mut PlaneReader,
    body: &PipedSender,
    mut contents: Option<ContentWay<'_>>,
) -> io::Result<()> {
    loop {
        let frame = tokio::select! {
            frame = read_frame(stream) => frame,
            () = body.closed() => Err(io::ErrorKind::BrokenPipe.into()),
        };
        let piece = match frame {
            Ok(BodyFrame::Data(data)) if data.is_empty() => continue,
            Ok(BodyFrame::Data(data)) => Ok(Frame::data(data)),
            Ok(BodyFrame::End(trailers)) => {
                if !trailers.is_empty() {
                    let _ = body.send(Ok(Frame::trailers(trailers))).await;
                }
                return Ok(());
            }
            Ok(BodyFrame::Failed(reason)) => Err(io::Error::other(reason)),
            Ok(BodyFrame::Content { name, length }) => match contents.as_mut() {
                Some(contents) if !contents.is_used => {
                    contents.is_used = true;
                    match contents.receive(stream.stream(), name, length, body).await {
                        Ok(true) => return Ok(()),
                        Ok(false) => continue,
                        Err(error) => Err(error),
                    }
                }
                _ => Err(invalid(WireFault::Invalid("a body as a content"))),
            },
            Err(error) => Err(error),
        };
        match piece {
            Ok(piece) => {
                if body.send(Ok(piece)).await.is_err() {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
            }
            Err(error) => {
                let text = error.to_string();
                let _ = body.send(Err(text.into())).await;
                return Err(error);
            }
        }
    }
}

/// Sends a body, and its end or why it has none.
pub async fn send<B>(stream: &mut PlaneWriter, body: B) -> io::Result<()>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
    queue(stream, body).await?;
    stream.send().await
}

/// Sends a body, with which its direction ends.
pub async fn send_last<B>(stream: &mut PlaneWriter, body: B) -> io::Result<()>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
    queue(stream, body).await?;
    stream.send_last().await
}

/// Sends a body as it comes; what is left when it ends is queued.
async fn queue<B>(stream: &mut PlaneWriter, mut body: B) -> io::Result<()>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
    let mut trailers = HeaderMap::new();
    let mut gathered = Gathered::default();
    loop {
        let next = match gathered.is_empty() {
            true => body.frame().await,
            false => match tokio::time::timeout(GATHER, body.frame()).await {
                Ok(next) => next,
                Err(_) => {
                    gathered.send(stream).await?;
                    continue;
                }
            },
        };
        match next {
            None => break,
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    gathered.add(data);
                    if gathered.length >= GATHERED {
                        gathered.send(stream).await?;
                    }
                }
                Err(frame) => trailers = frame.into_trailers().unwrap_or_default(),
            },
            Some(Err(error)) => {
                gathered.queue(stream);
                let reason = BodyFrame::Failed(error.into().to_string());
                stream.queue(reason.encode().map_err(invalid)?);
                return Ok(());
            }
        }
    }
    gathered.queue(stream);
    let end = BodyFrame::End(trailers).encode();
    let end = end.or_else(|_| BodyFrame::End(HeaderMap::new()).encode());
    stream.queue(end.map_err(invalid)?);
    Ok(())
}

/// Small pieces that share a frame.
#[derive(Default)]
struct Gathered {
    pieces: Vec<Bytes>,
    length: usize,
}

impl Gathered {
    fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    fn add(&mut self, data: Bytes) {
        self.length += data.len();
        if !data.is_empty() {
            self.pieces.push(data);
        }
    }

    /// Adds the pieces to what leaves next.
    fn queue(&mut self, stream: &mut PlaneWriter) {
        let mut left = core::mem::take(&mut self.length);
        let mut pieces = core::mem::take(&mut self.pieces).into_iter();
        let mut rest = Bytes::new();
        while left > 0 {
            let mut room = left.min(MAX_PIECE);
            left -= room;
            stream.queue(BodyFrame::data_head(room));
            while room > 0 {
                if rest.is_empty() {
                    rest = pieces.next().unwrap_or_default();
                }
                let part = rest.split_to(rest.len().min(room));
                room -= part.len();
                stream.queue(part);
            }
        }
    }

    async fn send(&mut self, stream: &mut PlaneWriter) -> io::Result<()> {
        self.queue(stream);
        stream.send().await
    }
}

/// Returns the error of bytes that are none of this protocol.
pub fn invalid(fault: WireFault) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, fault)
}
