//! Frames of a session. Sealed ones: an authenticated cipher in each direction, its keys and their
//! succession, and the counters that have arrived. Plain ones: a checksum.

use core::time::Duration;

use ring::aead::{AES_128_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use whimbrel_core::Time;
use zeroize::Zeroizing;

use super::super::wire::{CRC_LEN, Envelope, HEAD_LEN, TAG_LEN};

/// Frames under one key, in either direction. RFC 9001 §6.6 allows 2^23 for AES-GCM.
const FRAMES_PER_KEY: u64 = 1 << 22;
/// Hard limit of the frames sealed with one key.
const MOST_FRAMES_PER_KEY: u64 = 1 << 23;
/// How long a key is used.
const KEY_LIFETIME: Duration = Duration::from_secs(120);
/// Replay window: a frame may arrive this many frames late.
pub(super) const WINDOW: u64 = 8192;

const KEY_CONTEXT: &str = "whimbrel 2026 hop frame key";
const NEXT_CONTEXT: &str = "whimbrel 2026 hop next secret";

/// 32 secret bytes from which keys follow.
pub(super) type Secret = Zeroizing<[u8; 32]>;

/// What protects the frames of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suite {
    /// An authenticated cipher, fast where the processor has instructions for it.
    Aes128Gcm,
    /// An authenticated cipher, fast everywhere.
    ChaCha20Poly1305,
    /// The null cipher: a checksum against damage, and nothing against an attacker. Names are proven
    /// all the same: messages of the handshake are encrypted by [`Suite::ChaCha20Poly1305`].
    Plain,
}

impl Suite {
    pub(super) fn code(self) -> u8 {
        match self {
            Suite::Aes128Gcm => 1,
            Suite::ChaCha20Poly1305 => 2,
            Suite::Plain => 3,
        }
    }

    pub(super) fn of_code(code: u8) -> Option<Suite> {
        match code {
            1 => Some(Suite::Aes128Gcm),
            2 => Some(Suite::ChaCha20Poly1305),
            3 => Some(Suite::Plain),
            _ => None,
        }
    }
}

/// A key for frames, with what is mixed into their nonces.
pub(super) struct Key {
    key: LessSafeKey,
    iv: [u8; 12],
}

impl Key {
    /// Returns the key that follows from `secret`.
    pub(super) fn new(suite: Suite, secret: &[u8; 32]) -> Option<Key> {
        let mut bytes = Zeroizing::new([0; 44]);
        let mut hasher = blake3::Hasher::new_derive_key(KEY_CONTEXT);
        hasher.update(secret);
        hasher.finalize_xof().fill(bytes.as_mut());
        let algorithm = match suite {
            Suite::Aes128Gcm => &AES_128_GCM,
            Suite::ChaCha20Poly1305 | Suite::Plain => &CHACHA20_POLY1305,
        };
        let key = UnboundKey::new(algorithm, &bytes[..algorithm.key_len()]).ok()?;
        let mut iv = [0; 12];
        iv.copy_from_slice(&bytes[32..]);
        Some(Key {
            key: LessSafeKey::new(key),
            iv,
        })
    }

    fn nonce(&self, counter: u64) -> Nonce {
        let mut nonce = self.iv;
        for (byte, of_counter) in nonce[4..].iter_mut().zip(counter.to_be_bytes()) {
            *byte ^= of_counter;
        }
        Nonce::assume_unique_for_key(nonce)
    }

    /// Encrypts `frame` in place behind its first `clear` bytes, which are authenticated with it;
    /// its last [`TAG_LEN`] bytes are the tag's place.
    pub(super) fn seal(&self, counter: u64, clear: usize, frame: &mut [u8]) -> Option<()> {
        let (head, rest) = frame.split_at_mut_checked(clear)?;
        let (body, place) = rest.split_at_mut_checked(rest.len().checked_sub(TAG_LEN)?)?;
        let tag = self
            .key
            .seal_in_place_separate_tag(self.nonce(counter), Aad::from(&*head), body);
        place.copy_from_slice(tag.ok()?.as_ref());
        Some(())
    }

    /// Decrypts what is behind the first `clear` bytes of `frame` into `plain`, which it replaces.
    /// On failure `plain` is empty.
    pub(super) fn open(
        &self,
        counter: u64,
        clear: usize,
        frame: &[u8],
        plain: &mut Vec<u8>,
    ) -> Option<()> {
        plain.clear();
        let (head, rest) = frame.split_at_checked(clear)?;
        plain.extend_from_slice(rest);
        let opened = self
            .key
            .open_in_place(self.nonce(counter), Aad::from(head), plain)
            .map(|body| body.len());
        plain.truncate(opened.unwrap_or(0));
        opened.ok().map(|_| ())
    }
}

/// Returns the secret after `secret`; the former one cannot be computed from it.
fn next_secret(secret: &[u8; 32]) -> Secret {
    Zeroizing::new(blake3::derive_key(NEXT_CONTEXT, secret))
}

/// Why a frame is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The checksum is wrong: the frame is damaged.
    Damaged,
    /// The tag is wrong: damaged, or forged.
    Forged,
    /// It was accepted before, or is too late to tell.
    Replayed,
}

/// The counters of accepted frames: the highest one, and which of the [`WINDOW`] up to it.
struct Arrived {
    // One more than the highest; 0 before the first.
    end: u64,
    bits: Box<[u64; (WINDOW / 64) as usize]>,
}

impl Arrived {
    fn new() -> Arrived {
        Arrived {
            end: 0,
            bits: Box::new([0; (WINDOW / 64) as usize]),
        }
    }

    /// The counter whose low half is `low`: the one closest to what is expected next.
    fn extend(&self, low: u32) -> u64 {
        let ahead = low.wrapping_sub(self.end as u32) as i32;
        match self.end.checked_add_signed(i64::from(ahead)) {
            Some(counter) => counter,
            // Before the first one.
            None => u64::from(low),
        }
    }

    fn place(counter: u64) -> (usize, u64) {
        let at = counter % WINDOW;
        ((at / 64) as usize, 1 << (at % 64))
    }

    fn is_new(&self, counter: u64) -> bool {
        if counter >= self.end {
            return true;
        }
        let (word, bit) = Arrived::place(counter);
        self.end - counter <= WINDOW && self.bits[word] & bit == 0
    }

    fn note(&mut self, counter: u64) {
        if counter >= self.end {
            if counter - self.end >= WINDOW {
                self.bits.fill(0);
            } else {
                for skipped in self.end..counter {
                    let (word, bit) = Arrived::place(skipped);
                    self.bits[word] &= !bit;
                }
            }
            self.end = counter + 1;
        }
        let (word, bit) = Arrived::place(counter);
        self.bits[word] |= bit;
    }
}

/// Returns the CRC-32C (Castagnoli) of a plain frame: some carriers have a weak checksum or none.
fn checksum(bytes: &[u8]) -> [u8; CRC_LEN] {
    crc_fast::crc32_iscsi(bytes).to_be_bytes()
}

/// Both directions of one session.
pub(super) struct Channel {
    /// The index by which the other end knows it.
    pub(super) remote_index: u32,
    /// The index by which this end knows it.
    pub(super) local_index: u32,
    // Frames sent.
    counter: u64,
    // None of a plain session.
    keys: Option<Box<Keys>>,
}

/// The keys of both directions.
///
/// Those of a direction succeed each other in *epochs*. One end leads: it goes to the next epoch
/// when the present one is old, but only once the other has shown that it has reached the present
/// one. The other end follows as soon as it hears of an epoch, and never goes ahead: if both did,
/// each could take the other's step for an answer to its own. So the two are at most one epoch
/// apart, and two bits tell which one a frame is of, however long the path was down.
struct Keys {
    suite: Suite,
    leads: bool,
    send_key: Key,
    send_next: Secret,
    send_epoch: u32,
    epoch_began: (u64, Time),
    receive_key: Key,
    receive_before: Option<Key>,
    receive_next: Secret,
    // Computed for the first frame that claims to be of the next epoch.
    receive_after: Option<Key>,
    receive_epoch: u32,
    // The first counter of it that has arrived.
    receive_began: u64,
    arrived: Arrived,
}

impl Channel {
    /// `leads` is true at exactly one of the two ends. `None` if a cipher refuses its key, which has
    /// the right length.
    pub(super) fn new(
        now: Time,
        (suite, leads): (Suite, bool),
        (local_index, remote_index): (u32, u32),
        send: &Secret,
        receive: &Secret,
    ) -> Option<Channel> {
        let keys = match suite {
            Suite::Plain => None,
            _ => Some(Box::new(Keys::new(now, (suite, leads), send, receive)?)),
        };
        Some(Channel {
            remote_index,
            local_index,
            counter: 0,
            keys,
        })
    }

    /// Returns what is around the content of its frames.
    pub(super) fn envelope(&self) -> Envelope {
        match self.keys {
            Some(_) => Envelope::Sealed,
            None => Envelope::Plain,
        }
    }

    /// False while the key has sealed as much as it may: the other end has not been heard for
    /// millions of frames.
    pub(super) fn may_send(&self) -> bool {
        (self.keys.as_ref())
            .is_none_or(|keys| self.counter - keys.epoch_began.0 < MOST_FRAMES_PER_KEY)
    }

    /// Returns true if a frame whose counter has this low half was sent recently.
    pub(super) fn has_sent(&self, low: u32) -> bool {
        let ago = (self.counter as u32).wrapping_sub(low);
        (1..=1 << 16).contains(&ago) && u64::from(ago) <= self.counter
    }

    /// Completes a frame in place: its first byte says its kind, and it has room for the tag or the
    /// checksum. All but the head is encrypted, if the session is.
    pub(super) fn seal(&mut self, now: Time, frame: &mut [u8]) -> Option<()> {
        if let Some(keys) = &mut self.keys {
            keys.turn(now, self.counter)?;
        }
        let head = frame.get_mut(..HEAD_LEN)?;
        head[0] |= self.keys.as_ref().map_or(0, |keys| keys.epoch_bits());
        head[1..5].copy_from_slice(&self.remote_index.to_be_bytes());
        head[5..9].copy_from_slice(&(self.counter as u32).to_be_bytes());
        match &self.keys {
            Some(keys) => keys.send_key.seal(self.counter, HEAD_LEN, frame)?,
            None => {
                let (body, place) = frame.split_last_chunk_mut::<CRC_LEN>()?;
                *place = checksum(body);
            }
        }
        self.counter += 1;
        Some(())
    }

    /// Returns what a frame of at least [`HEAD_LEN`] bytes says: in it, or decrypted into `plain`.
    pub(super) fn open<'a>(
        &mut self,
        now: Time,
        frame: &'a [u8],
        plain: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], Refusal> {
        if let Some(keys) = &mut self.keys {
            keys.open(now, self.counter, frame, plain)?;
            return Ok(plain);
        }
        let read = || {
            let (body, crc) = frame.split_last_chunk::<CRC_LEN>()?;
            (*crc == checksum(body)).then_some(body.get(HEAD_LEN..)?)
        };
        read().ok_or(Refusal::Damaged)
    }
}

impl Keys {
    fn new(
        now: Time,
        (suite, leads): (Suite, bool),
        send: &Secret,
        receive: &Secret,
    ) -> Option<Keys> {
        Some(Keys {
            suite,
            leads,
            send_key: Key::new(suite, send)?,
            send_next: next_secret(send),
            send_epoch: 0,
            epoch_began: (0, now),
            receive_key: Key::new(suite, receive)?,
            receive_before: None,
            receive_next: next_secret(receive),
            receive_after: None,
            receive_epoch: 0,
            receive_began: 0,
            arrived: Arrived::new(),
        })
    }

    fn epoch_bits(&self) -> u8 {
        (self.send_epoch as u8 & 3) << 2
    }

    /// Goes to the next epoch before frame `counter` is sent, if it is time.
    fn turn(&mut self, now: Time, counter: u64) -> Option<()> {
        let (sent, age) = (counter - self.epoch_began.0, now.since(self.epoch_began.1));
        let received = self.arrived.end.saturating_sub(self.receive_began);
        let is_old = sent.max(received) >= FRAMES_PER_KEY || (sent > 0 && age >= KEY_LIFETIME);
        if self.leads && is_old && self.receive_epoch == self.send_epoch {
            self.advance_sending(now, counter)?;
        }
        Some(())
    }

    fn advance_sending(&mut self, now: Time, counter: u64) -> Option<()> {
        self.send_key = Key::new(self.suite, &self.send_next)?;
        self.send_next = next_secret(&self.send_next);
        self.send_epoch = self.send_epoch.wrapping_add(1);
        self.epoch_began = (counter, now);
        Some(())
    }

    /// Decrypts a frame into `plain`. `sent` frames have gone so far.
    fn open(
        &mut self,
        now: Time,
        sent: u64,
        frame: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let low = u32::from_be_bytes([frame[5], frame[6], frame[7], frame[8]]);
        let counter = self.arrived.extend(low);
        if !self.arrived.is_new(counter) {
            return Err(Refusal::Replayed);
        }
        let ahead = (frame[0] >> 2).wrapping_sub(self.receive_epoch as u8) & 3;
        if ahead == 1 && self.receive_after.is_none() {
            self.receive_after = Key::new(self.suite, &self.receive_next);
        }
        let key = match ahead {
            0 => Some(&self.receive_key),
            1 => self.receive_after.as_ref(),
            3 => self.receive_before.as_ref(),
            _ => None,
        };
        key.and_then(|key| key.open(counter, HEAD_LEN, frame, plain))
            .ok_or(Refusal::Forged)?;
        self.arrived.note(counter);
        if ahead == 1
            && let Some(next) = self.receive_after.take()
        {
            self.receive_before = Some(core::mem::replace(&mut self.receive_key, next));
            self.receive_next = next_secret(&self.receive_next);
            self.receive_epoch = self.receive_epoch.wrapping_add(1);
            self.receive_began = counter;
            if self.send_epoch != self.receive_epoch {
                // A cipher that took one key takes the next.
                let _ = self.advance_sending(now, sent);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn epoch(channel: &Channel) -> u32 {
        channel.keys.as_ref().unwrap().send_epoch
    }

    fn pair(suite: Suite) -> (Channel, Channel) {
        let (a, b) = (Zeroizing::new([1; 32]), Zeroizing::new([2; 32]));
        let one = Channel::new(Time::ZERO, (suite, true), (7, 9), &a, &b).unwrap();
        let other = Channel::new(Time::ZERO, (suite, false), (9, 7), &b, &a).unwrap();
        (one, other)
    }

    fn sealed(channel: &mut Channel, now: Time, text: &[u8]) -> Vec<u8> {
        let mut frame = vec![0x21, 0, 0, 0, 0, 0, 0, 0, 0];
        frame.extend_from_slice(text);
        frame.resize(frame.len() + TAG_LEN, 0);
        channel.seal(now, &mut frame).unwrap();
        frame
    }

    proptest! {
        /// The model is the set of what was accepted.
        #[test]
        fn a_counter_is_accepted_once_and_only_within_the_window(
            counters in prop::collection::vec(prop_oneof![0u64..40, 8_000u64..8_400, 0u64..60_000], 1..200),
        ) {
            let (mut arrived, mut model) = (Arrived::new(), BTreeSet::new());
            for counter in counters {
                let highest = model.last().copied();
                let late = highest.is_some_and(|highest: u64| highest + 1 > counter + WINDOW);
                prop_assert_eq!(arrived.is_new(counter), !late && !model.contains(&counter));
                if arrived.is_new(counter) {
                    arrived.note(counter);
                    model.insert(counter);
                }
            }
        }

        #[test]
        fn a_counter_is_known_by_its_low_half(end in 0u64..(1 << 40), away in -(1i64 << 30)..(1i64 << 30)) {
            let arrived = Arrived { end, ..Arrived::new() };
            if let Some(counter) = end.checked_add_signed(away) {
                prop_assert_eq!(arrived.extend(counter as u32), counter);
            }
        }

        /// Whatever is lost, however long, in either direction or both: what arrives in the order in
        /// which it was sent is read.
        #[test]
        fn the_ends_do_not_lose_each_others_keys(
            steps in prop::collection::vec((0u64..200, any::<[bool; 2]>(), any::<[bool; 2]>()), 1..80),
        ) {
            let (mut one, mut other) = pair(Suite::Aes128Gcm);
            let (mut now, mut plain) = (Time::ZERO, Vec::new());
            for (wait, sends, arrives) in steps {
                now += Duration::from_secs(wait);
                // They are under way at the same time.
                let there = sends[0].then(|| sealed(&mut one, now, b"there"));
                let back = sends[1].then(|| sealed(&mut other, now, b"back"));
                if let Some(there) = there.filter(|_| arrives[0]) {
                    prop_assert_eq!(other.open(now, &there, &mut plain), Ok(&b"there"[..]));
                }
                if let Some(back) = back.filter(|_| arrives[1]) {
                    prop_assert_eq!(one.open(now, &back, &mut plain), Ok(&b"back"[..]));
                }
                prop_assert!(epoch(&one).abs_diff(epoch(&other)) <= 1);
            }
        }

        /// Whatever is changed of it, in the clear part or behind it.
        #[test]
        fn a_changed_frame_is_refused(at: prop::sample::Index, change in 1u8..=255, cut in 0usize..30) {
            let (mut one, mut other) = pair(Suite::Aes128Gcm);
            let frame = sealed(&mut one, Time::ZERO, b"some words");
            let (mut forged, mut plain) = (frame.clone(), Vec::new());
            *at.get_mut(&mut forged) ^= change;
            // The index selects the channel before a frame gets here; it is authenticated, too.
            prop_assert_eq!(other.open(Time::ZERO, &forged, &mut plain), Err(Refusal::Forged));
            let short = &frame[..frame.len() - cut.min(frame.len() - HEAD_LEN)];
            let whole = short.len() == frame.len();
            prop_assert_eq!(other.open(Time::ZERO, short, &mut plain).is_ok(), whole);
            if !whole {
                prop_assert_eq!(other.open(Time::ZERO, &frame, &mut plain), Ok(&b"some words"[..]));
            }
            prop_assert_eq!(other.open(Time::ZERO, &frame, &mut plain), Err(Refusal::Replayed));
        }
    }

    #[test]
    fn both_ciphers_carry_frames_both_ways_and_not_back_to_their_sender() {
        for suite in [Suite::Aes128Gcm, Suite::ChaCha20Poly1305] {
            let (mut one, mut other) = pair(suite);
            let mut plain = Vec::new();
            for number in 0u8..5 {
                let there = sealed(&mut one, Time::ZERO, &[number]);
                let back = sealed(&mut other, Time::ZERO, &[number; 3]);
                assert_eq!(
                    other.open(Time::ZERO, &there, &mut plain),
                    Ok(&[number][..])
                );
                assert_eq!(
                    one.open(Time::ZERO, &back, &mut plain),
                    Ok(&[number; 3][..])
                );
                assert!(one.open(Time::ZERO, &there, &mut plain).is_err());
            }
        }
    }

    #[test]
    fn keys_succeed_each_other_only_as_fast_as_both_ends_follow() {
        let (mut one, mut other) = pair(Suite::Aes128Gcm);
        let mut plain = Vec::new();
        let mut late = Vec::new();
        for minutes in 1..40 {
            let now = Time::from_secs(minutes * 60);
            late.push(sealed(&mut one, now, b"a"));
            // An outage of half an hour: nothing arrives.
            if (3..30).contains(&minutes) {
                continue;
            }
            for frame in late.drain(..) {
                assert!(other.open(now, &frame, &mut plain).is_ok(), "{minutes}");
            }
            let answer = sealed(&mut other, now, b"b");
            assert!(one.open(now, &answer, &mut plain).is_ok(), "{minutes}");
        }
        assert!((5..8).contains(&epoch(&one)), "{}", epoch(&one));
        assert_eq!(epoch(&one), epoch(&other));
    }

    #[test]
    fn who_only_receives_has_the_keys_of_what_comes_replaced() {
        let (mut one, mut other) = pair(Suite::Aes128Gcm);
        let mut plain = Vec::new();
        // As if `other` had sent so many frames since the first.
        other.counter = FRAMES_PER_KEY;
        let frame = sealed(&mut other, Time::ZERO, b"one of many");
        assert!(one.open(Time::ZERO, &frame, &mut plain).is_ok());
        let frame = sealed(&mut one, Time::ZERO, b"an acknowledgement");
        assert_eq!((epoch(&one), epoch(&other)), (1, 0));
        assert!(other.open(Time::ZERO, &frame, &mut plain).is_ok());
        assert_eq!(epoch(&other), 1);
        let frame = sealed(&mut other, Time::ZERO, b"one of many");
        assert!(one.open(Time::ZERO, &frame, &mut plain).is_ok());
        sealed(&mut one, Time::ZERO, b"an acknowledgement");
        assert_eq!(epoch(&one), 1, "once for each 2^22 frames");
    }

    #[test]
    fn what_arrives_late_under_the_former_key_is_read() {
        let (mut one, mut other) = pair(Suite::ChaCha20Poly1305);
        let mut plain = Vec::new();
        sealed(&mut one, Time::ZERO, b"first");
        let before = sealed(&mut one, Time::from_secs(1), b"before");
        let after = sealed(&mut one, Time::from_secs(121), b"after");
        assert_eq!(epoch(&one), 1);
        for (frame, text) in [(&after, &b"after"[..]), (&before, b"before")] {
            let opened = other.open(Time::from_secs(121), frame, &mut plain);
            assert_eq!(opened, Ok(text));
        }
    }

    /// Neither outlives damage of a few bits, and a network's duplicates are left to the transfers.
    #[test]
    fn a_plain_frame_is_read_where_it_lies_unless_it_is_damaged() {
        let (mut one, mut other) = pair(Suite::Plain);
        let mut frame = vec![0x21; HEAD_LEN];
        frame.extend_from_slice(b"legible");
        frame.resize(frame.len() + CRC_LEN, 0);
        one.seal(Time::ZERO, &mut frame).unwrap();
        assert_eq!(&frame[..HEAD_LEN], [0x21, 0, 0, 0, 9, 0, 0, 0, 0]);
        let mut plain = Vec::new();
        for _ in 0..2 {
            let opened = other.open(Time::ZERO, &frame, &mut plain);
            assert_eq!(opened, Ok(&b"legible"[..]));
        }
        assert_eq!(plain.capacity(), 0);
        for at in 0..frame.len() * 8 {
            let mut damaged = frame.clone();
            damaged[at / 8] ^= 1 << (at % 8);
            let opened = other.open(Time::ZERO, &damaged, &mut plain);
            assert_eq!(opened, Err(Refusal::Damaged), "bit {at}");
        }
        for len in 0..frame.len() {
            assert!(other.open(Time::ZERO, &frame[..len], &mut plain).is_err());
        }
        // No key is worn out.
        one.counter = u64::from(u32::MAX) + 7;
        assert!(one.may_send() && one.has_sent(5) && !one.has_sent(6));
    }
}
