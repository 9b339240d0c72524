//! Messages and questions.

use std::ffi::c_int;

use whimbrel_client::session::{Answer, Question};

use crate::argument::{self, Out, OutBuffer, whimbrel_name};
use crate::code::whimbrel_code::*;
use crate::code::{Fault, guarded};
use crate::program::{Program, whimbrel, with};
use crate::transfer::{chosen, whimbrel_options};

/// Sends at most 32,768 bytes to the programs that listen to a channel at the receiver. A message arrives at most
/// once and is not acknowledged. `options` may be NULL; only its storage and service apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_message(
    handle: whimbrel,
    destination: *const whimbrel_name,
    channel: u32,
    data: *const u8,
    length: usize,
    options: *const whimbrel_options,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (destination, data) = unsafe {
            (
                argument::value(destination, "destination")?,
                argument::values(data, length)?,
            )
        };
        // SAFETY: the caller's promise.
        let delivery = unsafe { chosen(options) }?.0.delivery;
        with(handle, |program| {
            let session = program.driver.session();
            let payload = data.to_vec().into();
            session.message(destination.guid(), channel, delivery, payload)?;
            program.driver.flush();
            Ok(WHIMBREL_OK)
        })
    })
}

/// Subscribes to the messages of a channel.
#[unsafe(no_mangle)]
pub extern "C" fn whimbrel_listen(handle: whimbrel, channel: u32) -> c_int {
    guarded(|| {
        with(handle, |program| {
            program.driver.session().listen(channel);
            program.driver.flush();
            Ok(WHIMBREL_OK)
        })
    })
}

/// Writes the next message of a channel to `buffer`, its length to `length`, and the name that the sender claims,
/// without proof, to `from`, which may be NULL. Returns WHIMBREL_AGAIN if there is none. A message longer than the
/// buffer is truncated; 32,768 bytes always suffice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_next_message(
    handle: whimbrel,
    channel: u32,
    from: *mut whimbrel_name,
    buffer: *mut u8,
    size: usize,
    length: *mut usize,
) -> c_int {
    guarded(|| {
        let (buffer, length) = (OutBuffer::new(buffer, size)?, Out::new(length, "length")?);
        with(handle, |program| {
            let Some(message) = program.driver.session().take_message(channel)? else {
                return Err(Fault::new(WHIMBREL_AGAIN, "no message yet"));
            };
            // SAFETY: the caller's promise.
            unsafe {
                length.set(buffer.fill(&message.payload));
                if let Ok(from) = Out::new(from, "from") {
                    from.set(message.from.into());
                }
            }
            Ok(WHIMBREL_OK)
        })
    })
}

/// Requests the host's status and writes the question's number to `question`. whimbrel_answer returns it as a JSON
/// object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_status(handle: whimbrel, question: *mut u32) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { ask(handle, Question::Status, question) }
}

/// Sends an echo request and writes the question's number to `question`. whimbrel_answer returns the name of the node
/// that answered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_ping(
    handle: whimbrel,
    destination: *const whimbrel_name,
    question: *mut u32,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let destination = unsafe { argument::value(destination, "destination") }?.guid();
        let asked = Question::Ping {
            destination,
            padding: 0,
        };
        // SAFETY: the caller's promise.
        match unsafe { ask_for(handle, asked, question) } {
            Ok(()) => Ok(WHIMBREL_OK),
            Err(fault) => Err(fault),
        }
    })
}

unsafe fn ask(handle: whimbrel, asked: Question, question: *mut u32) -> c_int {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { ask_for(handle, asked, question) }.map(|()| WHIMBREL_OK))
}

unsafe fn ask_for(handle: whimbrel, asked: Question, question: *mut u32) -> Result<(), Fault> {
    let place = Out::new(question, "question")?;
    let number = with(handle, |program| {
        let number = program.driver.session().ask(asked);
        program.driver.flush();
        Ok(number)
    })?;
    // SAFETY: the caller's promise.
    unsafe { place.set(number) };
    Ok(())
}

/// Writes the answer to a question to `buffer` as zero-terminated text, and its length without the zero to `length`.
/// Returns WHIMBREL_AGAIN until there is one. If the buffer is too small, returns WHIMBREL_SMALL and discards the
/// answer; 1 MiB is enough for a status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_answer(
    handle: whimbrel,
    question: u32,
    buffer: *mut u8,
    size: usize,
    length: *mut usize,
) -> c_int {
    guarded(|| {
        let (buffer, length) = (OutBuffer::new(buffer, size)?, Out::new(length, "length")?);
        let mut text = with(handle, |program| answer(program, question))?;
        // SAFETY: the caller's promise.
        unsafe {
            length.set(text.len());
            text.push('\0');
            buffer.fill_whole(text.as_bytes())?;
        }
        Ok(WHIMBREL_OK)
    })
}

fn answer(program: &mut Program, question: u32) -> Result<String, Fault> {
    let session = program.driver.session();
    match session.take_answer(question) {
        Some(Answer::Status(json)) => Ok(json),
        Some(Answer::Pong(from)) => Ok(from.to_string()),
        Some(Answer::Names(names)) => Ok(format!("{names:?}")),
        Some(Answer::Failed(error)) => Err(error.into()),
        None if session.is_asked(question) => Err(Fault::new(WHIMBREL_AGAIN, "no answer yet")),
        None => Err(Fault::new(
            WHIMBREL_OVER,
            "no such question, or its answer has been read",
        )),
    }
}
