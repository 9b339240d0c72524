//! A filter of the kernel before the queue of a listener's socket, while strangers flood it.
//!
//! The filter (classic BPF) drops what has the shape of no frame. The loop is not woken for it, and
//! it takes no place in the queue. It looks at beginnings and least lengths only: the kernel may
//! show it several datagrams of one sender as one (GRO), with the first one's beginning and the
//! length of all.
//!
//! The kernel does not say how much a filter drops, and whoever reads no noise cannot tell when a
//! flood ends. So the filter passes one of [`SAMPLE`] at random, which counts for all of them.

use std::io;

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_LEN,
    BPF_MEM, BPF_MISC, BPF_RET, BPF_ST, BPF_TAX, BPF_TXA, BPF_W, SKF_AD_OFF, SKF_AD_RANDOM,
};
use socket2::{SockFilter, Socket};
use whimbrel_core::FrameShape;

/// Of so many datagrams without a shape one passes. A power of two.
pub(super) const SAMPLE: u32 = 32;
const _: () = assert!(SAMPLE.is_power_of_two());
/// Bound of the shapes: a jump goes over 255 instructions at most, and a shape takes six.
const MAX_SHAPES: usize = 40;
/// A socket's filter sees a datagram from its UDP header on.
const UDP_HEADER: u32 = 8;
/// The beginning of a datagram that every shape looks at.
const WORD: u32 = 4;
/// Verdicts: octets that are kept of a datagram.
const PASS: u32 = u32::MAX;
const DROP: u32 = 0;

/// The filter of one socket.
#[derive(Debug)]
pub(super) struct Filter {
    shapes: Vec<FrameShape>,
    is_in_force: bool,
}

impl Filter {
    /// Attaches a filter that passes frames of these shapes. `None` if there are none, or too many:
    /// then anything may be a frame.
    pub(super) fn attach(socket: &Socket, shapes: Vec<FrameShape>) -> io::Result<Option<Filter>> {
        if shapes.is_empty() || shapes.len() > MAX_SHAPES {
            return Ok(None);
        }
        socket.attach_filter(&program(&shapes))?;
        Ok(Some(Filter {
            shapes,
            is_in_force: false,
        }))
    }

    pub(super) fn detach(socket: &Socket) -> io::Result<()> {
        socket.detach_filter()
    }

    /// What was in the queue before the filter has been read.
    pub(super) fn note_empty_queue(&mut self) {
        self.is_in_force = true;
    }

    /// Returns how many datagrams were dropped for each one of a batch that has passed: an estimate.
    pub(super) fn dropped_for_each(&self, datagrams: &[u8]) -> u64 {
        let is_sample = || !self.shapes.iter().any(|shape| shape.fits(datagrams));
        match self.is_in_force && is_sample() {
            true => u64::from(SAMPLE) - 1,
            false => 0,
        }
    }
}

fn instruction(code: u32, operand: u32) -> SockFilter {
    branch(code, 0, 0, operand)
}

/// `then` and `otherwise`: instructions to skip.
fn branch(code: u32, then: u8, otherwise: u8, operand: u32) -> SockFilter {
    SockFilter::new(code as u16, then, otherwise, operand)
}

/// Returns the instructions of a filter for at most [`MAX_SHAPES`] shapes. X holds the length with
/// the header, the first place of memory holds the beginning.
fn program(shapes: &[FrameShape]) -> Vec<SockFilter> {
    let of_shapes = shapes.iter().flat_map(|shape| {
        let least = UDP_HEADER + shape.shortest as u32;
        [
            instruction(BPF_LD | BPF_MEM, 0),
            instruction(BPF_ALU | BPF_AND | BPF_K, shape.mask),
            // Each of these two may lead to the next shape.
            branch(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, shape.value),
            instruction(BPF_MISC | BPF_TXA, 0),
            branch(BPF_JMP | BPF_JGE | BPF_K, 0, 1, least),
            instruction(BPF_RET | BPF_K, PASS),
        ]
    });
    let of_shapes: Vec<SockFilter> = of_shapes.collect();
    // A load from beyond a datagram's end would drop it, and none of them could pass as a sample.
    let beyond = of_shapes.len() as u8 + 2;
    let head = [
        instruction(BPF_LD | BPF_W | BPF_LEN, 0),
        instruction(BPF_MISC | BPF_TAX, 0),
        branch(BPF_JMP | BPF_JGE | BPF_K, 0, beyond, UDP_HEADER + WORD),
        instruction(BPF_LD | BPF_W | BPF_ABS, UDP_HEADER),
        instruction(BPF_ST, 0),
    ];
    let tail = [
        instruction(
            BPF_LD | BPF_W | BPF_ABS,
            (SKF_AD_OFF + SKF_AD_RANDOM) as u32,
        ),
        branch(BPF_JMP | BPF_JSET | BPF_K, 0, 1, SAMPLE - 1),
        instruction(BPF_RET | BPF_K, DROP),
        instruction(BPF_RET | BPF_K, PASS),
    ];
    head.into_iter().chain(of_shapes).chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;
    use std::net::{SocketAddr, UdpSocket};
    use std::time::Duration;

    use quinn_udp::{RecvMeta, Transmit};

    use super::super::socket::batching;
    use super::*;

    const SHAPES: [FrameShape; 3] = [
        FrameShape::beginning(0x10, 12),
        FrameShape {
            mask: 0xff00_ff00,
            value: 0x3000_0100,
            shortest: 6,
        },
        FrameShape::beginning(0x11, 4),
    ];
    /// Of so many datagrams of noise about two pass, and never half.
    const MANY: usize = 64;
    /// Says that all before it has arrived.
    const LAST: &[u8] = &[0x11, 0xff, 0xff, 0xff];

    struct Pair {
        listener: UdpSocket,
        filter: Filter,
        sender: UdpSocket,
    }

    fn pair(at: &str) -> Pair {
        let listener = UdpSocket::bind(at).unwrap();
        let patience = Some(Duration::from_secs(60));
        listener.set_read_timeout(patience).unwrap();
        let socket = Socket::from(listener.try_clone().unwrap());
        let filter = Filter::attach(&socket, SHAPES.to_vec()).unwrap().unwrap();
        let sender = UdpSocket::bind(at).unwrap();
        sender.connect(listener.local_addr().unwrap()).unwrap();
        Pair {
            listener,
            filter,
            sender,
        }
    }

    impl Pair {
        /// Returns how many of these have passed.
        fn passed(&self, times: usize, datagram: &[u8]) -> usize {
            for _ in 0..times {
                self.sender.send(datagram).unwrap();
            }
            self.sender.send(LAST).unwrap();
            let mut buffer = [0; 2_000];
            let mut passed = 0;
            loop {
                let len = self.listener.recv(&mut buffer).unwrap();
                if &buffer[..len] == LAST {
                    return passed;
                }
                assert_eq!(&buffer[..len], datagram, "whole");
                passed += 1;
            }
        }
    }

    #[test]
    fn frames_of_all_shapes_pass_and_noise_does_not() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let pair = pair(at);
            for frame in [
                &[0x10; 12][..],
                &[0x10; 1_400],
                &[0x30, 7, 1, 7, 7, 7],
                &[0x30, 7, 1, 7, 7, 7, 7],
                &[0x11; 4],
            ] {
                assert_eq!(pair.passed(MANY, frame), MANY, "{frame:?} at {at}");
            }
            for noise in [
                &[][..],
                &[0x10],
                &[0x11; 3],
                &[0x10; 11],
                &[0x12; 1_400],
                &[0x30, 7, 1, 7, 7],
                &[0x30, 7, 2, 7, 7, 7],
                &[0; 100],
            ] {
                let passed = pair.passed(MANY, noise);
                assert!(passed < MANY / 2, "{passed} of {noise:?} at {at}");
            }
        }
    }

    #[test]
    fn some_noise_passes_and_stands_for_the_rest() {
        let mut pair = pair("127.0.0.1:0");
        let noise = [0xff; 20];
        let (mut sent, mut passed) = (0, 0);
        while passed < 100 {
            passed += pair.passed(MANY, &noise);
            sent += MANY;
            assert!(sent < 100_000, "{passed} of {sent}");
        }
        assert!(sent > 1_000, "{passed} of {sent}");
        assert_eq!(pair.filter.dropped_for_each(&noise), 0, "from before it");
        pair.filter.note_empty_queue();
        assert_eq!(pair.filter.dropped_for_each(&noise), u64::from(SAMPLE) - 1);
        assert_eq!(pair.filter.dropped_for_each(&[0x10; 12]), 0);
    }

    #[test]
    fn everything_passes_when_it_is_gone_and_where_nothing_is_known() {
        let pair = pair("127.0.0.1:0");
        let socket = Socket::from(pair.listener.try_clone().unwrap());
        Filter::detach(&socket).unwrap();
        assert_eq!(pair.passed(MANY, b"noise"), MANY);
        assert!(Filter::attach(&socket, Vec::new()).unwrap().is_none());
        let many = vec![SHAPES[0]; MAX_SHAPES + 1];
        assert!(Filter::attach(&socket, many).unwrap().is_none());
        assert_eq!(pair.passed(MANY, b"noise"), MANY);
    }

    #[test]
    fn the_kernel_takes_as_many_shapes_as_there_may_be() {
        let pair = pair("127.0.0.1:0");
        let socket = Socket::from(pair.listener.try_clone().unwrap());
        let mut many = vec![FrameShape::beginning(0x77, 4); MAX_SHAPES - 1];
        many.push(SHAPES[2]);
        assert!(Filter::attach(&socket, many).unwrap().is_some());
        assert_eq!(pair.passed(MANY, &[0x77; 4]), MANY);
        assert!(pair.passed(MANY, &[1]) < MANY / 2, "the longest jump");
    }

    /// A frame, and a shorter one of no shape behind it: the kernel shows both as one datagram.
    #[test]
    fn frames_that_the_kernel_puts_together_pass_together() {
        let pair = pair("127.0.0.1:0");
        let state = batching(&Socket::from(pair.listener.try_clone().unwrap())).unwrap();
        let sending = batching(&Socket::from(pair.sender.try_clone().unwrap())).unwrap();
        if state.gro_segments() == 1 || sending.max_gso_segments() == 1 {
            // A kernel that puts nothing together.
            return;
        }
        pair.listener.set_nonblocking(false).unwrap();
        let train = [&[0x10; 12][..], &[0x10; 12], &[0xff; 5]].concat();
        let destination: SocketAddr = pair.listener.local_addr().unwrap();
        for _ in 0..MANY {
            let transmit = Transmit {
                destination,
                ecn: None,
                contents: &train,
                segment_size: Some(12),
                src_ip: None,
            };
            sending.try_send((&pair.sender).into(), &transmit).unwrap();
            let (mut buffer, mut meta) = ([0; 2_000], [RecvMeta::default()]);
            let mut slices = [IoSliceMut::new(&mut buffer)];
            let socket = (&pair.listener).into();
            assert_eq!(state.recv(socket, &mut slices, &mut meta).unwrap(), 1);
            assert_eq!((meta[0].len, meta[0].stride), (train.len(), 12));
        }
    }
}
