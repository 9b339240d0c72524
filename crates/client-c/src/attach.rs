//! Attaching, waiting and names.

use std::ffi::{c_char, c_int};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use whimbrel_client::driver::poll_readable;
use whimbrel_client::place::host_daemon_socket;
use whimbrel_client::session::{Answer, ProgramSession, Question};
use whimbrel_client::stated::{read_admission, read_service_key};
use whimbrel_client::{AttachOptions, Guid, HostDriver, MembershipChange};

use crate::argument::{self, Out, OutBuffer, whimbrel_name};
use crate::code::whimbrel_code::*;
use crate::code::{Fault, guarded, numbered};
use crate::program::{self, whimbrel, with};

/// Attaches to the host daemon on `socket`, or, if that is NULL, to this user's daemon or else the system's, and
/// writes a handle to `handle`. If the daemon goes away, transfers fail after `reconnect_ms` milliseconds; 0 stands
/// for a minute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_attach(
    socket: *const c_char,
    reconnect_ms: u64,
    handle: *mut whimbrel,
) -> c_int {
    guarded(|| {
        let handle = Out::new(handle, "handle")?;
        // SAFETY: the caller's promise.
        let socket = unsafe { argument::path(socket) }.unwrap_or_else(host_daemon_socket);
        let mut options = AttachOptions::default();
        if reconnect_ms > 0 {
            options.reconnect_for = Duration::from_millis(reconnect_ms);
        }
        let opened = program::open(HostDriver::attach(&socket, options)?)?;
        // SAFETY: the caller's promise.
        unsafe { handle.set(opened) };
        Ok(WHIMBREL_OK)
    })
}

/// Withdraws all publications, ends all transfers and closes the handle. Content that the network has already taken
/// is still delivered.
#[unsafe(no_mangle)]
pub extern "C" fn whimbrel_detach(handle: whimbrel) -> c_int {
    guarded(|| program::close(handle).map(|()| WHIMBREL_OK))
}

/// Returns a file descriptor that is readable when whimbrel_process has something to do; negative if it fails. It
/// belongs to the handle and must not be read, written or closed. It stays the same when the host restarts.
#[unsafe(no_mangle)]
pub extern "C" fn whimbrel_fd(handle: whimbrel) -> c_int {
    numbered(|| with(handle, |program| Ok(program.driver.as_fd().as_raw_fd())))
}

/// Handles events from the host, and supplies chunks of published content, without waiting.
#[unsafe(no_mangle)]
pub extern "C" fn whimbrel_process(handle: whimbrel) -> c_int {
    guarded(|| {
        with(handle, |program| {
            program.driver.process()?;
            Ok(WHIMBREL_OK)
        })
    })
}

/// Waits for at most `timeout_ms` milliseconds (without limit if negative) until there is something to do, and does
/// it. If nothing was done, returns WHIMBREL_TIMED_OUT, or after a signal WHIMBREL_INTERRUPTED.
#[unsafe(no_mangle)]
pub extern "C" fn whimbrel_wait(handle: whimbrel, timeout_ms: i64) -> c_int {
    guarded(|| {
        // The handle can be used by others meanwhile, or be closed.
        let readable = with(handle, |program| {
            let readable = program.driver.as_fd().try_clone_to_owned();
            readable.map_err(|error| Fault::new(WHIMBREL_FAULT, error.to_string()))
        })?;
        let patience = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        match poll_readable(readable.as_fd(), patience) {
            Ok(true) => with(handle, |program| {
                program.driver.process()?;
                Ok(WHIMBREL_OK)
            }),
            Ok(false) => {
                let text = format!("nothing has happened within {timeout_ms} ms");
                Err(Fault::new(WHIMBREL_TIMED_OUT, text))
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Err(Fault::new(
                WHIMBREL_INTERRUPTED,
                "a signal interrupted the wait; call whimbrel_wait again",
            )),
            Err(error) => Err(Fault::new(WHIMBREL_FAULT, error.to_string())),
        }
    })
}

/// Returns 1 while the host daemon is connected, 0 while it is away, or a negative code.
#[unsafe(no_mangle)]
pub extern "C" fn whimbrel_is_connected(handle: whimbrel) -> c_int {
    numbered(|| {
        with(handle, |program| {
            Ok(program.driver.session().is_connected().into())
        })
    })
}

/// Writes the host's name, the destination for others that send to it, to `name`. Returns WHIMBREL_AGAIN until the
/// host has reported it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_own_name(handle: whimbrel, name: *mut whimbrel_name) -> c_int {
    guarded(|| {
        let place = Out::new(name, "name")?;
        let own = with(handle, |program| {
            if program.name.is_none() {
                let session = program.driver.session();
                let question = *program
                    .name_question
                    .get_or_insert_with(|| session.ask(Question::Status));
                match session.take_answer(question) {
                    Some(Answer::Status(json)) => {
                        program.name_question = None;
                        program.name = name_in(&json);
                    }
                    Some(Answer::Failed(error)) => {
                        program.name_question = None;
                        return Err(error.into());
                    }
                    Some(_) | None => {}
                }
                program.driver.flush();
            }
            Ok(program.name)
        })?;
        match own {
            Some(own) => {
                // SAFETY: the caller's promise.
                unsafe { place.set(own.into()) };
                Ok(WHIMBREL_OK)
            }
            None => Err(Fault::new(
                WHIMBREL_AGAIN,
                "the host has not reported its name yet",
            )),
        }
    })
}

/// Attaches the host under the name of a key in addition to its own, while this handle is open. Anycast to that name
/// reaches the nearest host attached under it. `key_file` is a file made by `whimbrel id new`. Writes the name to
/// `name`; whimbrel_name_known reports when others can use it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_attach_service(
    handle: whimbrel,
    key_file: *const c_char,
    name: *mut whimbrel_name,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { argument::path(key_file) };
        let path = path.ok_or_else(|| Fault::argument("key_file is NULL"))?;
        let key = read_service_key(&path)?;
        // SAFETY: the caller's promise.
        unsafe { take_name(handle, name, |session| session.attach_service(key)) }
    })
}

/// Makes this host a member of a group, or ends the membership if `is_on` is 0. `admission` is the text that
/// `whimbrel group admit` prints. A membership outlasts the program. Writes the group's name, the destination for the
/// service "multicast", to `name`; whimbrel_name_known reports when the membership is registered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_join_group(
    handle: whimbrel,
    admission: *const c_char,
    is_on: c_int,
    name: *mut whimbrel_name,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let text = unsafe { argument::text(admission) }?;
        let admission = read_admission(text.unwrap_or_default())?;
        let change = match is_on {
            0 => MembershipChange::Leave,
            _ => MembershipChange::Join,
        };
        // SAFETY: the caller's promise.
        unsafe {
            take_name(handle, name, |session| {
                session.set_membership(admission, change)
            })
        }
    })
}

unsafe fn take_name(
    handle: whimbrel,
    name: *mut whimbrel_name,
    take: impl FnOnce(&mut ProgramSession) -> Guid,
) -> Result<crate::whimbrel_code, Fault> {
    let place = Out::new(name, "name")?;
    let taken = with(handle, |program| {
        let taken = take(program.driver.session());
        program.driver.flush();
        Ok(taken)
    })?;
    // SAFETY: the caller's promise.
    unsafe { place.set(taken.into()) };
    Ok(WHIMBREL_OK)
}

/// Returns WHIMBREL_OK once a service or membership is registered with the name service, WHIMBREL_AGAIN before, and
/// WHIMBREL_FAILED if it was refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_name_known(
    handle: whimbrel,
    name: *const whimbrel_name,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { argument::value(name, "name") }?.guid();
        with(handle, |program| {
            match program.driver.session().is_name_known(name)? {
                true => Ok(WHIMBREL_OK),
                false => Err(Fault::new(
                    WHIMBREL_AGAIN,
                    "not registered with the name service yet",
                )),
            }
        })
    })
}

/// Returns the name in a host's report.
fn name_in(json: &str) -> Option<Guid> {
    let (_, rest) = json.split_once("\"guid\":")?;
    let (_, rest) = rest.split_once('"')?;
    rest.split_once('"')?.0.parse().ok()
}

/// Reads a name of 64 hexadecimal digits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_name_parse(
    text: *const c_char,
    name: *mut whimbrel_name,
) -> c_int {
    guarded(|| {
        let place = Out::new(name, "name")?;
        // SAFETY: the caller's promise.
        let text =
            unsafe { argument::text(text) }?.ok_or_else(|| Fault::argument("text is NULL"))?;
        let name: Guid = text
            .parse()
            .map_err(|_| Fault::argument("a name has 64 hexadecimal digits"))?;
        // SAFETY: the caller's promise.
        unsafe { place.set(name.into()) };
        Ok(WHIMBREL_OK)
    })
}

/// Writes a name as 64 hexadecimal digits and a zero to `text`, which must have room for 65 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_name_text(
    name: *const whimbrel_name,
    text: *mut c_char,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { argument::value(name, "name") }?;
        Out::new(text, "text")?;
        let digits = format!("{}\0", name.guid());
        let buffer = OutBuffer::new(text.cast(), digits.len())?;
        // SAFETY: the caller's promise.
        unsafe { buffer.fill_whole(digits.as_bytes()) }?;
        Ok(WHIMBREL_OK)
    })
}

/// Returns a short description of a code.
#[unsafe(no_mangle)]
pub extern "C" fn whimbrel_code_text(code: c_int) -> *const c_char {
    let text = match code {
        0 => c"done",
        1 => c"all bytes have been read",
        -1 => c"not ready yet",
        -2 => c"invalid argument",
        -3 => c"closed handle",
        -4 => c"handle of another process",
        -5 => c"no host daemon",
        -6 => c"ended by the host or a router",
        -7 => c"refused",
        -8 => c"too long",
        -9 => c"file cannot be read",
        -10 => c"timed out",
        -11 => c"interrupted",
        -12 => c"no such transfer or question",
        -13 => c"buffer too small",
        -14 => c"internal error",
        _ => c"unknown code",
    };
    text.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_in_a_report_is_found() {
        let name = Guid([7; 32]);
        let report = format!("{{\"version\":\"1\",\"guid\": \"{name}\",\"links\":[]}}");
        assert_eq!(name_in(&report), Some(name));
        assert_eq!(name_in("{}"), None);
    }
}
