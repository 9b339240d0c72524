//! Contents: publish, get, send, inbox.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use whimbrel_client::session::ChunkStep;
use whimbrel_client::stated::StatedOptions;
use whimbrel_client::{
    ContentOffer, ContentSource, GetOptions, Guid, OfferRule, OfferUse, OfferVerdict,
    PublishOptions, SendOptions, TransferOptions, TransferState,
};

use crate::argument::{self, Out, OutBuffer, whimbrel_name};
use crate::code::whimbrel_code::*;
use crate::code::{Fault, guarded};
use crate::program::{Program, whimbrel, with};

/// Options of transfers and messages. Fields that are 0 or NULL are unspecified, so `{0}` is the same as no options.
/// Words are those of the command line.
#[repr(C)]
#[allow(non_camel_case_types, reason = "a name of the C interface")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct whimbrel_options {
    /// The chunk size in bytes: a power of two from 16 KiB to 4 MiB, or 0 to let the network decide.
    pub chunk_size: u64,
    /// How long a chunk may be missing before it is requested again, in milliseconds.
    pub nack_timeout_ms: u64,
    /// "nack", "ack" or "dont-care".
    pub reliability: *const c_char,
    /// How long a router may store chunks that it cannot forward: "default", "never" or a time such as "2 h".
    pub storage: *const c_char,
    /// "default", "unicast", "multihoming", "anycast" or "multicast".
    pub service: *const c_char,
    /// For published and sent content: not 0 if the access router is to keep copies and serve them.
    pub delegate: u8,
    /// For sent content, the end of the transfer. 0: the first router has all of it; otherwise: the receiver has all
    /// of it.
    pub until_delivered: u8,
    /// For sent content, the use reported to the receiver: 0 a file, 1 a note to read.
    pub proposed: u8,
}

/// The progress of a transfer.
#[repr(C)]
#[allow(non_camel_case_types, reason = "a name of the C interface")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct whimbrel_progress {
    /// Bytes received, or bytes that the first router has taken.
    pub bytes: u64,
    /// For sent content, bytes that routers store because the receiver is away.
    pub stored: u64,
    /// For fetched content, its length in bytes; 0 until it is known.
    pub length: u64,
    /// For fetched content: 0 requested, 1 flowing, 2 stalled, 3 no router responds, 4 the host is away. For sent
    /// content: 0 in progress, 1 taken by the first router, 2 delivered, 3 taken and kept by the access router;
    /// refused: 4 not accepted, 5 too long, 6 inbox full, 7 unusable; 8 lost in the network, 9 replaced by another
    /// transfer of the same content, 10 delivered to some members of a group and refused by all others.
    pub state: u32,
    /// For fetched content: 1 once all of it has arrived.
    pub is_complete: u8,
}

/// A content offered by a sender.
#[repr(C)]
#[allow(non_camel_case_types, reason = "a name of the C interface")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct whimbrel_offer {
    /// The sender's name, proven by its signature.
    pub sender: whimbrel_name,
    /// The sender's number for this offer.
    pub number: u64,
    /// The content.
    pub content: whimbrel_name,
    /// Its length in bytes.
    pub length: u64,
    /// The use that the sender proposes: 0 a file, 1 a note, 2 a folder as one content.
    pub proposed: u8,
    /// The file name that the sender suggests, zero-terminated. It must not be used as a path.
    pub file_name: [c_char; 256],
}

/// Publishes a copy of `length` bytes and writes the content's name to `content`, which may be NULL. `file_name` is a
/// suggestion to receivers. `file_name` and `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_publish_bytes(
    handle: whimbrel,
    data: *const u8,
    length: usize,
    file_name: *const c_char,
    options: *const whimbrel_options,
    content: *mut whimbrel_name,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let source = unsafe { source_of_bytes(data, length, file_name) }?;
        // SAFETY: the caller's promise.
        unsafe { publish(handle, source, options, content) }
    })
}

/// Publishes a file. This call hashes the file; its chunks are read again when a receiver requests them, so it must
/// not change. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_publish_file(
    handle: whimbrel,
    path: *const c_char,
    options: *const whimbrel_options,
    content: *mut whimbrel_name,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let source = unsafe { source_of_file(path) }?;
        // SAFETY: the caller's promise.
        unsafe { publish(handle, source, options, content) }
    })
}

unsafe fn source_of_bytes(
    data: *const u8,
    length: usize,
    file_name: *const c_char,
) -> Result<ContentSource, Fault> {
    // SAFETY: the caller's promise.
    let (data, file_name) =
        unsafe { (argument::values(data, length)?, argument::text(file_name)?) };
    let bytes = Bytes::copy_from_slice(data);
    Ok(ContentSource::of_bytes(
        bytes,
        file_name.unwrap_or_default(),
    ))
}

unsafe fn source_of_file(path: *const c_char) -> Result<ContentSource, Fault> {
    // SAFETY: the caller's promise.
    let path = unsafe { argument::path(path) }.ok_or_else(|| Fault::argument("path is NULL"))?;
    let source = ContentSource::of_file(&path);
    source.map_err(|error| Fault::new(WHIMBREL_FILE, error.to_string()))
}

unsafe fn publish(
    handle: whimbrel,
    source: ContentSource,
    options: *const whimbrel_options,
    content: *mut whimbrel_name,
) -> Result<crate::whimbrel_code, Fault> {
    // SAFETY: the caller's promise.
    let (transfer, chosen) = unsafe { chosen(options) }?;
    let options = PublishOptions {
        transfer,
        delegate: chosen.is_some_and(|chosen| chosen.delegate != 0),
    };
    let name = with(handle, |program| {
        Ok(program.driver.publish(Arc::new(source), options))
    })?;
    if let Ok(content) = Out::new(content, "content") {
        // SAFETY: the caller's promise.
        unsafe { content.set(name.into()) };
    }
    Ok(WHIMBREL_OK)
}

/// Returns WHIMBREL_OK once a published content is registered with the name service, WHIMBREL_AGAIN before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_announced(
    handle: whimbrel,
    content: *const whimbrel_name,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let content = unsafe { argument::value(content, "content") }?.guid();
        with(handle, |program| {
            match program.driver.session().is_announced(content)? {
                true => Ok(WHIMBREL_OK),
                false => Err(Fault::new(
                    WHIMBREL_AGAIN,
                    "not registered with the name service yet",
                )),
            }
        })
    })
}

/// Ends a publication.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_withdraw(
    handle: whimbrel,
    content: *const whimbrel_name,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let content = unsafe { argument::value(content, "content") }?.guid();
        with(handle, |program| {
            program.driver.session().announcement(content)?;
            program.driver.withdraw(content);
            Ok(WHIMBREL_OK)
        })
    })
}

/// Fetches a content of at most `limit` bytes (0 for any) and writes the transfer's number to `transfer`. `options` may
/// be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_get(
    handle: whimbrel,
    content: *const whimbrel_name,
    limit: u64,
    options: *const whimbrel_options,
    transfer: *mut u32,
) -> c_int {
    guarded(|| {
        let place = Out::new(transfer, "transfer")?;
        // SAFETY: the caller's promise.
        let content = unsafe { argument::value(content, "content") }?.guid();
        // SAFETY: the caller's promise.
        let (chosen, _) = unsafe { chosen(options) }?;
        let options = GetOptions {
            limit: (limit > 0).then_some(limit),
            transfer: chosen,
            ..GetOptions::default()
        };
        let number = with(handle, |program| {
            let number = program.driver.session().get(content, options);
            program.driver.flush();
            Ok(number)
        })?;
        // SAFETY: the caller's promise.
        unsafe { place.set(number) };
        Ok(WHIMBREL_OK)
    })
}

/// Writes the next bytes of a fetched content, verified and in order, to `buffer` and their number to `length`.
/// Returns WHIMBREL_AGAIN if there are none yet and WHIMBREL_END after the last. Reading opens the flow-control
/// window for further bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_read(
    handle: whimbrel,
    transfer: u32,
    buffer: *mut u8,
    size: usize,
    length: *mut usize,
) -> c_int {
    guarded(|| {
        let (buffer, length) = (OutBuffer::new(buffer, size)?, Out::new(length, "length")?);
        if buffer.size() == 0 {
            return Err(Fault::argument("the buffer has no room"));
        }
        with(handle, |program| {
            let rest = match program.rest.get_mut(&transfer) {
                Some(rest) => rest,
                None => match program.driver.session().take_piece(transfer)? {
                    ChunkStep::Piece(piece) => program.rest.entry(transfer).or_insert(piece),
                    ChunkStep::Waiting => {
                        return Err(Fault::new(WHIMBREL_AGAIN, "no bytes yet"));
                    }
                    ChunkStep::Complete(_) => {
                        // SAFETY: the caller's promise.
                        unsafe { length.set(0) };
                        program.note_read(transfer);
                        return Ok(WHIMBREL_END);
                    }
                },
            };
            // SAFETY: the caller's promise.
            let count = unsafe { buffer.fill(&rest.data) };
            rest.data = rest.data.slice(count..);
            if rest.data.is_empty() {
                program.rest.remove(&transfer);
            }
            program.driver.flush();
            // SAFETY: the caller's promise.
            unsafe { length.set(count) };
            Ok(WHIMBREL_OK)
        })
    })
}

/// Ends a transfer or discards a question. A sent content is still delivered if the network has taken all of it.
#[unsafe(no_mangle)]
pub extern "C" fn whimbrel_cancel(handle: whimbrel, transfer: u32) -> c_int {
    guarded(|| {
        with(handle, |program| {
            program.rest.remove(&transfer);
            program.accepted.remove(&transfer);
            program.driver.cancel(transfer);
            Ok(WHIMBREL_OK)
        })
    })
}

/// Writes the progress of a transfer to `progress`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_transfer(
    handle: whimbrel,
    transfer: u32,
    progress: *mut whimbrel_progress,
) -> c_int {
    guarded(|| {
        let place = Out::new(progress, "progress")?;
        let progress = with(handle, |program| {
            progress_of(program, transfer).ok_or_else(|| {
                Fault::new(WHIMBREL_OVER, "there is no such transfer, or it is over")
            })
        })?;
        // SAFETY: the caller's promise.
        unsafe { place.set(progress) };
        Ok(WHIMBREL_OK)
    })
}

fn progress_of(program: &mut Program, transfer: u32) -> Option<whimbrel_progress> {
    let session = program.driver.session();
    if let Some(get) = session.get_progress(transfer) {
        return Some(whimbrel_progress {
            bytes: get.bytes,
            stored: 0,
            length: get.length.unwrap_or_default(),
            state: match get.state {
                Some(TransferState::Requested) => 0,
                Some(TransferState::Flowing) => 1,
                Some(TransferState::Stalled) => 2,
                Some(TransferState::Disconnected) => 3,
                None => 4,
            },
            is_complete: get.is_complete.into(),
        });
    }
    let sent = session.send_progress(transfer)?;
    Some(whimbrel_progress {
        bytes: sent.taken,
        stored: sent.stored,
        length: 0,
        state: sent.state as u32,
        is_complete: 0,
    })
}

/// Sends a copy of `length` bytes to a receiver and writes the transfer's number to `transfer`. `file_name` and
/// `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_send_bytes(
    handle: whimbrel,
    destination: *const whimbrel_name,
    data: *const u8,
    length: usize,
    file_name: *const c_char,
    options: *const whimbrel_options,
    transfer: *mut u32,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let source = unsafe { source_of_bytes(data, length, file_name) }?;
        // SAFETY: the caller's promise.
        unsafe { send(handle, destination, source, options, transfer) }
    })
}

/// Sends a file. This call hashes the file, which must not change until it is sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_send_file(
    handle: whimbrel,
    destination: *const whimbrel_name,
    path: *const c_char,
    options: *const whimbrel_options,
    transfer: *mut u32,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let source = unsafe { source_of_file(path) }?;
        // SAFETY: the caller's promise.
        unsafe { send(handle, destination, source, options, transfer) }
    })
}

unsafe fn send(
    handle: whimbrel,
    destination: *const whimbrel_name,
    source: ContentSource,
    options: *const whimbrel_options,
    transfer: *mut u32,
) -> Result<crate::whimbrel_code, Fault> {
    let place = Out::new(transfer, "transfer")?;
    // SAFETY: the caller's promise.
    let destination = unsafe { argument::value(destination, "destination") }?.guid();
    // SAFETY: the caller's promise.
    let options = match unsafe { chosen(options) }? {
        (transfer, Some(chosen)) => SendOptions {
            proposed: match chosen.proposed {
                0 => OfferUse::File,
                1 => OfferUse::Note,
                _ => return Err(Fault::argument("proposed is 0 (a file) or 1 (a note)")),
            },
            transfer,
            delegate: chosen.delegate != 0,
            until_delivered: chosen.until_delivered != 0,
        },
        (_, None) => SendOptions::default(),
    };
    let number = with(handle, |program| {
        Ok(program.driver.send(destination, Arc::new(source), options))
    })?;
    // SAFETY: the caller's promise.
    unsafe { place.set(number) };
    Ok(WHIMBREL_OK)
}

/// Returns the options of a transfer, and all that the program has chosen; nothing for NULL.
///
/// # Safety
/// `options` is NULL or points at options whose texts are NULL or end with a zero.
pub(crate) unsafe fn chosen(
    options: *const whimbrel_options,
) -> Result<(TransferOptions, Option<whimbrel_options>), Fault> {
    // SAFETY: the caller's promise.
    let Ok(options) = (unsafe { argument::value(options, "options") }) else {
        return Ok((TransferOptions::default(), None));
    };
    // SAFETY: the caller's promise.
    let text = |text| unsafe { argument::text(text) }.map(Option::unwrap_or_default);
    let (size, timeout) = (options.chunk_size, options.nack_timeout_ms);
    let stated = StatedOptions {
        chunk_size: (size > 0).then_some(size),
        reliability: text(options.reliability)?,
        nack_timeout: (timeout > 0).then(|| Duration::from_millis(timeout)),
        storage: text(options.storage)?,
        service: text(options.service)?,
    };
    Ok((stated.transfer()?, Some(options)))
}

/// Returns WHIMBREL_OK once a sent content has reached the first router or, with `until_delivered`, the receiver;
/// WHIMBREL_AGAIN before; WHIMBREL_REFUSED if the receiver refuses it.
#[unsafe(no_mangle)]
pub extern "C" fn whimbrel_sent(handle: whimbrel, transfer: u32) -> c_int {
    guarded(|| {
        with(handle, |program| {
            match program.driver.session().send_outcome(transfer)? {
                Some(_) => Ok(WHIMBREL_OK),
                None => Err(Fault::new(WHIMBREL_AGAIN, "not there yet")),
            }
        })
    })
}

/// Accepts offers of unrequested content: from `count` senders only, or from anyone if `count` is 0, and of at most
/// `max_size` bytes each, or of any length if `max_size` is 0. Others are refused. A second call replaces the rule.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_inbox(
    handle: whimbrel,
    senders: *const whimbrel_name,
    count: usize,
    max_size: u64,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let senders = unsafe { argument::values(senders, count) }?;
        let senders: BTreeSet<Guid> = senders.iter().map(|name| name.guid()).collect();
        let rule = OfferRule {
            senders: (count > 0).then_some(senders),
            max_size: (max_size > 0).then_some(max_size),
        };
        with(handle, |program| {
            program.driver.session().take_offers(rule);
            program.driver.flush();
            Ok(WHIMBREL_OK)
        })
    })
}

/// Writes the next offer to `offer`, or returns WHIMBREL_AGAIN if there is none. Follow it with whimbrel_accept or
/// whimbrel_refuse.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_next_offer(
    handle: whimbrel,
    offer: *mut whimbrel_offer,
) -> c_int {
    guarded(|| {
        let place = Out::new(offer, "offer")?;
        let taken = with(handle, |program| {
            let Some(taken) = program.driver.session().take_offer() else {
                return Err(Fault::new(WHIMBREL_AGAIN, "no offer yet"));
            };
            program.keep_offer(taken.clone());
            Ok(taken)
        })?;
        // SAFETY: the caller's promise.
        unsafe { place.set(described(&taken)) };
        Ok(WHIMBREL_OK)
    })
}

fn described(offer: &ContentOffer) -> whimbrel_offer {
    let mut file_name = [0; 256];
    let text = offer.content.file_name.as_bytes().iter();
    // The last place stays zero.
    for (place, byte) in file_name[..255].iter_mut().zip(text) {
        *place = *byte as c_char;
    }
    whimbrel_offer {
        sender: offer.id.sender.into(),
        number: offer.id.number,
        content: offer.content.content.into(),
        length: offer.content.content_len,
        proposed: offer.proposed as u8,
        file_name,
    }
}

/// Accepts an offer and writes the transfer's number to `transfer`. The sender is told of the delivery when
/// whimbrel_read has returned WHIMBREL_END.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_accept(
    handle: whimbrel,
    offer: *const whimbrel_offer,
    transfer: *mut u32,
) -> c_int {
    guarded(|| {
        let place = Out::new(transfer, "transfer")?;
        // SAFETY: the caller's promise.
        let offer = unsafe { argument::value(offer, "offer") }?;
        let number = with(handle, |program| {
            let offer = program.decide_offer(offer.sender.guid(), offer.number)?;
            let options = GetOptions {
                limit: Some(offer.content.content_len),
                ..GetOptions::default()
            };
            let number = program.driver.session().accept(&offer, options);
            program.driver.flush();
            program.accepted.insert(number, offer);
            Ok(number)
        })?;
        // SAFETY: the caller's promise.
        unsafe { place.set(number) };
        Ok(WHIMBREL_OK)
    })
}

/// Refuses an offer. The sender is told `reason`: 1 not accepted, 2 too long, 3 the inbox is full, 4 not usable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_refuse(
    handle: whimbrel,
    offer: *const whimbrel_offer,
    reason: c_int,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let offer = unsafe { argument::value(offer, "offer") }?;
        let verdict = match reason {
            1 => OfferVerdict::NotAccepted,
            2 => OfferVerdict::TooLong,
            3 => OfferVerdict::InboxFull,
            4 => OfferVerdict::Unusable,
            _ => return Err(Fault::argument("reason is 1 to 4")),
        };
        with(handle, |program| {
            let offer = program.decide_offer(offer.sender.guid(), offer.number)?;
            program.driver.session().settle(&offer, verdict);
            program.driver.flush();
            Ok(WHIMBREL_OK)
        })
    })
}
