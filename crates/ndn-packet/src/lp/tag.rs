//! The path tag of [PTP §1]: a stack of labels, each of which names a face of one router.
//!
//! "The consensual tag used in PTP is a stack, where each item is the identifier of a forwarding
//! interface" ([PTP §4-A]). The top of the stack is first. The two highest bits of a label's
//! first octet are the binary logarithm of its length (1, 2, 4 or 8 octets), all other bits its
//! number, most significant first: every router chooses the length of its own labels, and none has
//! to know those of the others. `docs/protocols/ptp.md` has vectors.

use bytes::{BufMut, Bytes, BytesMut};

/// Maximum octets of a tag: 63 labels of 4 octets, 31 of 8.
pub const MAX_TAG: usize = 252;

/// A face, as one router names it in tags. Only that router knows which face it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(u64);

impl Label {
    /// Bits of a number that fits in 4 octets.
    pub const BITS_OF_4_OCTETS: u32 = 30;

    /// The label with the number 0.
    pub const ZERO: Label = Label(0);

    /// Returns a label; `None` for numbers of more than 62 bits.
    pub const fn new(number: u64) -> Option<Label> {
        if number >> 62 == 0 {
            Some(Label(number))
        } else {
            None
        }
    }

    /// Returns its number.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns the binary logarithm of its length.
    const fn size(self) -> u32 {
        match self.0 {
            0..0x40 => 0,
            0x40..0x4000 => 1,
            0x4000..0x4000_0000 => 2,
            _ => 3,
        }
    }

    /// Returns its octets in a tag.
    pub const fn encoded_len(self) -> usize {
        1 << self.size()
    }
}

/// A tag in a packet: the labels that are left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag<'a>(&'a [u8]);

impl<'a> Tag<'a> {
    /// Returns the tag with these octets, which may be malformed: see [`Tag::hops`].
    pub const fn new(octets: &'a [u8]) -> Tag<'a> {
        Tag(octets)
    }

    /// Returns its octets.
    pub const fn octets(self) -> &'a [u8] {
        self.0
    }

    /// True without any label.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Returns the top label, and the tag below it; `None` if the tag is empty or its top is cut
    /// off.
    pub fn pop(self) -> Option<(Label, Tag<'a>)> {
        let size = 1usize << (self.0.first()? >> 6);
        let (top, rest) = self.0.split_at_checked(size)?;
        let number = top
            .iter()
            .fold(0, |number, octet| number << 8 | u64::from(*octet));
        let length_bits = 8 * size as u32 - 2;
        Some((Label(number & ((1 << length_bits) - 1)), Tag(rest)))
    }

    /// Returns the tag with one more label on top; `None` if it is too long for that.
    pub fn push(self, label: Label) -> Option<Bytes> {
        let size = label.encoded_len();
        let len = self.0.len() + size;
        if len > MAX_TAG {
            return None;
        }
        let word = (label.0 | u64::from(label.size()) << (8 * size - 2)).to_be_bytes();
        let mut octets = BytesMut::with_capacity(len);
        octets.put_slice(word.get(8 - size..)?);
        octets.put_slice(self.0);
        Some(octets.freeze())
    }

    /// Returns the number of labels; `None` if the tag is malformed.
    pub fn hops(self) -> Option<usize> {
        let mut hops = 0;
        let mut rest = self;
        while !rest.is_empty() {
            rest = rest.pop()?.1;
            hops += 1;
        }
        Some(hops)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn labels_of_every_length_lie_as_the_document_says() {
        let pushed = |number, below: &[u8]| {
            Tag::new(below)
                .push(Label::new(number).unwrap())
                .map(|tag| tag.to_vec())
        };
        assert_eq!(pushed(0, b""), Some(vec![0]));
        assert_eq!(pushed(0x3f, b""), Some(vec![0x3f]));
        assert_eq!(pushed(0x40, b""), Some(vec![0x40, 0x40]));
        assert_eq!(pushed(0x3fff, b""), Some(vec![0x7f, 0xff]));
        assert_eq!(pushed(0x4000, b""), Some(vec![0x80, 0, 0x40, 0]));
        assert_eq!(
            pushed(0x1234_5678, b"\x05"),
            Some(vec![0x92, 0x34, 0x56, 0x78, 0x05])
        );
        assert_eq!(pushed((1 << 62) - 1, b""), Some(vec![0xff; 8]));
        assert_eq!(Label::new(1 << 62), None);
    }

    #[test]
    fn a_path_of_32_hops_has_room_whatever_the_routers_choose_up_to_four_octets() {
        let label = Label::new((1 << Label::BITS_OF_4_OCTETS) - 1).unwrap();
        let mut tag = Bytes::new();
        let mut hops = 0;
        while let Some(longer) = Tag::new(&tag).push(label) {
            tag = longer;
            hops += 1;
        }
        assert_eq!((hops, tag.len()), (63, MAX_TAG));
        assert_eq!(Tag::new(&tag).hops(), Some(63));
    }

    #[test]
    fn a_label_that_is_cut_off_is_no_label() {
        for octets in [&[0x40][..], &[0x80, 1, 2], &[0xc0; 7]] {
            assert_eq!(Tag::new(octets).pop(), None);
            assert_eq!(Tag::new(octets).hops(), None);
        }
        assert_eq!(Tag::new(&[]).pop(), None);
        assert_eq!(Tag::new(&[]).hops(), Some(0));
        // What lies above it can still be followed.
        let (label, rest) = Tag::new(&[0x07, 0x80]).pop().unwrap();
        assert_eq!((label.number(), rest.octets()), (7, &[0x80][..]));
    }

    proptest! {
        #[test]
        fn a_stack_is_popped_in_the_reverse_order(numbers in prop::collection::vec(0u64..1 << 62, 0..31)) {
            let mut tag = Bytes::new();
            for number in &numbers {
                tag = Tag::new(&tag).push(Label::new(*number).unwrap()).unwrap();
            }
            prop_assert_eq!(Tag::new(&tag).hops(), Some(numbers.len()));
            let mut rest = Tag::new(&tag);
            for number in numbers.iter().rev() {
                let (label, below) = rest.pop().unwrap();
                prop_assert_eq!(label.number(), *number);
                rest = below;
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn any_octets_end(octets in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut rest = Tag::new(&octets);
            let mut steps = 0;
            while let Some((label, below)) = rest.pop() {
                prop_assert!(label.number() < 1 << 62);
                prop_assert!(below.octets().len() < rest.octets().len());
                (rest, steps) = (below, steps + 1);
            }
            prop_assert_eq!(Tag::new(&octets).hops(), rest.is_empty().then_some(steps));
        }
    }
}
