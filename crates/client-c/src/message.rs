//! Messages and questions.

use std::ffi::c_int;

use whimbrel_client::session::{Answer, Question};

use crate::argument::{self, Out, OutBuffer, whimbrel_name};
use crate::code::whimbrel_code::*;
use crate::code::{Fault, guarded};
use crate::program::{Program, whimbrel, with};
use crate::transfer::{chosen, whimbrel_options};

/// Sends at most 32,768 bytes to the programs that listen to a channel at the receiver. They arrive at most once, and
/// the sender is not told. Of `options`, which may be NULL, the storage and the service count.
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

/// Receives the messages of a channel from now on.
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

/// Writes the next message of a channel to `buffer` and its length to `length`, and the sender's claim of its name to
/// `from`, which may be NULL. WHIMBREL_AGAIN if there is none; the rest of a message that is longer than the buffer is
/// lost, so that 32,768 bytes are enough.
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
                return Err(Fault::new(WHIMBREL_AGAIN, "no message has come yet"));
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

/// Asks the host for its report and writes the question's number to `question`. whimbrel_answer has a JSON object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_status(handle: whimbrel, question: *mut u32) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { ask(handle, Question::Status, question) }
}

/// Sends an echo request and writes the question's number to `question`. whimbrel_answer has the name of the node that
/// has answered.
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

/// Writes the answer to a question to `buffer`, as text with a zero at its end, and its length without that to
/// `length`. WHIMBREL_AGAIN until it is there; WHIMBREL_SMALL if the buffer has no room, and then it is lost: 1 MiB is
/// enough for a report.
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
            "no such question, or its answer was taken",
        )),
    }
}
