//! How frames are told from noise without a look at what they say.

/// What all frames of one kind have in common. It is so little that a driver can have the kernel
/// look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameShape {
    /// Those bits of the first four octets (big-endian) that are the same in all frames of the kind.
    pub mask: u32,
    /// What they are; 0 outside of the mask.
    pub value: u32,
    /// Octets of the shortest such frame, at least 4. There is no bound above: a driver may see
    /// several frames of one sender as one.
    pub shortest: usize,
}

impl FrameShape {
    /// The frames of at least `shortest` octets that begin with this one.
    pub const fn beginning(octet: u8, shortest: usize) -> FrameShape {
        FrameShape {
            mask: 0xff << 24,
            value: (octet as u32) << 24,
            shortest,
        }
    }

    /// Returns true if a frame, or several of which it is the first, may be of this kind.
    pub fn fits(&self, frames: &[u8]) -> bool {
        let begins = frames.first_chunk().map(|word| u32::from_be_bytes(*word));
        frames.len() >= self.shortest && begins.is_some_and(|word| word & self.mask == self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_a_beginning_and_a_least_length() {
        let shape = FrameShape {
            mask: 0xff00_ff00,
            value: 0x3000_0100,
            shortest: 6,
        };
        assert!(shape.fits(&[0x30, 9, 1, 9, 9, 9]));
        assert!(shape.fits(&[0x30, 0, 1, 0, 0, 0, 0]), "a longer one");
        assert!(!shape.fits(&[0x30, 9, 1, 9, 9]), "too short");
        assert!(!shape.fits(&[0x30, 9, 2, 9, 9, 9]), "another version");
        assert!(!shape.fits(&[0x31, 9, 1, 9, 9, 9]), "another type");
        assert!(FrameShape::beginning(7, 4).fits(&[7, 0, 0, 0]));
        assert!(!FrameShape::beginning(7, 4).fits(&[7, 0, 0]));
        assert!(!FrameShape::beginning(7, 4).fits(&[]));
    }
}
