//! A TUN device: an interface of a host whose packets this process reads and writes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use crate::{LabError, Namespace};

// include/uapi/linux/if_tun.h: `#define TUNSETIFF _IOW('T', 202, int)`.
const TUNSETIFF: Opcode = opcode::write::<libc::c_int>(b'T', 202);
const DEVICE: &str = "/dev/net/tun";

/// A TUN device. It exists in its host for as long as this value lives.
///
/// It is opened without the virtio header, so the kernel cuts what it sends into packets of the
/// device's MTU before this process sees them: no segmentation or receive offload, as in the
/// testbed of [MFTP §5].
#[derive(Debug)]
pub struct Tun {
    device: OwnedFd,
}

impl Tun {
    /// Creates the device `name` (at most 15 bytes) in `host`; it has no address and is down.
    pub fn create(host: &Namespace, name: &str) -> Result<Tun, LabError> {
        if name.len() >= libc::IFNAMSIZ {
            return Err(LabError::BadTopology(format!(
                "the interface name '{name}' is too long"
            )));
        }
        // A device belongs to the network namespace of the thread that opened it.
        let device = host.enter(open_device)??;
        attach(&device, name).map_err(LabError::system(format!(
            "create the TUN device '{name}' in host '{}'",
            host.name()
        )))?;
        Ok(Tun {
            device: device.into(),
        })
    }

    /// Reads one packet, or returns `Ok(None)` if there is none now.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::read(&self.device, buffer) {
            Ok(length) => Ok(Some(length)),
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Passes one packet to the host's kernel. Fails for a packet that the kernel finds malformed.
    pub(crate) fn send(&self, packet: &[u8]) -> io::Result<()> {
        rustix::io::write(&self.device, packet)?;
        Ok(())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

pub(crate) fn open_device() -> Result<File, LabError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(DEVICE)
        .map_err(|source| {
            let advice = match source.kind() {
                io::ErrorKind::NotFound => "load the module with 'modprobe tun' as root",
                io::ErrorKind::PermissionDenied => {
                    "run it as root, or let users open it with 'chmod 0666 /dev/net/tun'"
                }
                _ => "see whether the module 'tun' is loaded",
            };
            LabError::NoTun { source, advice }
        })
}

fn attach(device: &File, name: &str) -> io::Result<()> {
    let flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags },
    };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`; that its number says `int` is
    // historical.
    unsafe { ioctl(device, Updater::<TUNSETIFF, libc::ifreq>::new(&mut request)) }?;
    Ok(())
}
