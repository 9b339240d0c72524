//! The code: a number, by which the two sides meet, and words, which only they know.
//!
//! The words are those of the PGP word list (P. Juola and P. Zimmermann, 1995), chosen to be easily
//! distinguished by ear: 256 of two syllables for the odd places, 256 of three for the even ones,
//! so that a swapped or missing word is noticed. A last word is computed from the number and the
//! others: it is never sent, and finds a slip that made another word of the list, or another number.

use core::fmt;
use core::str::FromStr;
use std::sync::LazyLock;

use whimbrel_core::suggest;

/// The number of secret words in a code. Each is worth 8 bits.
pub const WORDS: usize = 3;
/// What the check word is computed with.
const CHECK: crc::Crc<u8> = crc::Crc::<u8>::new(&crc::CRC_8_GSM_A);
/// The number of words with the check word.
const ALL_WORDS: usize = WORDS + 1;
/// The largest number that begins a code.
pub const MAX_NUMBER: u16 = 9999;

/// Each byte twice: once at an even index and once at an odd one.
static PAIRS: [u8; 512] = {
    let mut pairs = [0; 512];
    let mut at = 0;
    while at < pairs.len() {
        pairs[at] = (at / 2) as u8;
        at += 1;
    }
    pairs
};
static LIST: LazyLock<Vec<&'static str>> = LazyLock::new(|| pgp_words::to_words(&PAIRS));

/// Returns the words that may be at a place.
fn words_at(place: usize) -> impl Iterator<Item = &'static str> + Clone {
    LIST.iter().skip(place % 2).step_by(2).copied()
}

/// A code: `7-crusade-hazardous-button-rebellion`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Code {
    number: u16,
    secret: [u8; WORDS],
}

/// The reason why a text is not a code.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CodeError {
    /// It does not begin with a number.
    #[error(
        "a code is a number from 1 to {MAX_NUMBER} and {ALL_WORDS} words; '{0}' is not such a number"
    )]
    Number(String),
    /// It has more or fewer words.
    #[error(
        "a code has {ALL_WORDS} words after its number (the last one is a check, and may be left out); this one has {0}"
    )]
    Words(usize),
    /// The last word does not fit the number and the others.
    #[error(
        "the last word of this code does not fit the rest: its number or one of its words is wrong; ask for the code again"
    )]
    Check,
    /// A word of the list that is never at this place.
    #[error("'{0}' cannot be word {1} of a code: a word is missing, or two are swapped")]
    Place(String, usize),
    /// A word that is not in the list.
    #[error("'{word}' is not a word of any code{hint}")]
    Unknown {
        /// The word.
        word: String,
        /// A suggestion of the word that was meant, or an empty text.
        hint: String,
    },
}

impl Code {
    /// Returns a code from random bytes, or `None` if the number is out of range.
    pub fn new(number: u16, secret: [u8; WORDS]) -> Option<Code> {
        (1..=MAX_NUMBER)
            .contains(&number)
            .then_some(Code { number, secret })
    }

    /// Returns the public part, by which the two sides meet.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Returns the secret part.
    pub(crate) fn words(&self) -> String {
        pgp_words::to_words(&self.secret).join("-")
    }

    /// Returns the byte of the check word. It differs whenever one word, or a number below 256, does,
    /// and when words are swapped.
    fn check(&self) -> u8 {
        let mut digest = CHECK.digest();
        digest.update(&self.number.to_be_bytes());
        digest.update(&self.secret);
        digest.finalize()
    }

    /// Returns true if the text looks like a code rather than a name or a ticket: a number and
    /// something after a separator.
    pub fn is_meant_by(text: &str) -> bool {
        let mut parts = parts(text);
        let starts = parts.next().is_some_and(is_number);
        starts && parts.next().is_some()
    }
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_alphanumeric())
        .filter(|part| !part.is_empty())
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the byte that a word stands for.
fn byte_of(word: &str, place: usize) -> Result<u8, CodeError> {
    let word = word.to_lowercase();
    if let Some(byte) = words_at(place).position(|known| known == word) {
        return Ok(byte as u8);
    }
    if words_at(place + 1).any(|known| known == word) {
        return Err(CodeError::Place(word, place + 1));
    }
    let near = suggest::nearest(&word, words_at(place));
    let hint = near.map_or(String::new(), |near| format!("; did you mean '{near}'?"));
    Err(CodeError::Unknown { word, hint })
}

impl FromStr for Code {
    type Err = CodeError;

    /// Reads a code as people write it: in any case, its parts set apart by anything but letters
    /// and digits.
    fn from_str(text: &str) -> Result<Code, CodeError> {
        let mut parts = parts(text);
        let first = parts.next().unwrap_or_default();
        let number = Some(first)
            .filter(|first| is_number(first))
            .and_then(|first| first.parse().ok());
        let words: Vec<&str> = parts.collect();
        let code = number.and_then(|number| Code::new(number, [0; WORDS]));
        let Some(Code { number, .. }) = code else {
            return Err(CodeError::Number(first.to_owned()));
        };
        // A mistyped word is a more useful error than the number of words.
        let mut read = [0; ALL_WORDS];
        for (place, word) in words.iter().enumerate().take(ALL_WORDS) {
            read[place] = byte_of(word, place)?;
        }
        if !(WORDS..=ALL_WORDS).contains(&words.len()) {
            return Err(CodeError::Words(words.len()));
        }
        let [secret @ .., check] = read;
        let code = Code { number, secret };
        // Without a check word the sender finds the slip, and counts a wrong guess.
        if words.len() == ALL_WORDS && check != code.check() {
            return Err(CodeError::Check);
        }
        Ok(code)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let check = words_at(WORDS).nth(self.check().into()).unwrap_or_default();
        write!(f, "{}-{}-{check}", self.number, self.words())
    }
}

impl fmt::Debug for Code {
    /// Omits the words, because other people read logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code({}-...)", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_code() -> impl Strategy<Value = Code> {
        (1..=MAX_NUMBER, any::<[u8; WORDS]>())
            .prop_map(|(number, secret)| Code::new(number, secret).unwrap())
    }

    proptest! {
        #[test]
        fn a_code_is_read_however_it_is_written(code in any_code(), gaps in prop::collection::vec("[-_., \t]{1,3}", ALL_WORDS), loud: bool) {
            let text = code.to_string();
            prop_assert!(Code::is_meant_by(&text));
            let mut gaps = gaps.iter();
            let mut spaced = String::new();
            for part in text.split('-') {
                if !spaced.is_empty() {
                    spaced += gaps.next().unwrap();
                }
                spaced += part;
            }
            if loud {
                spaced = spaced.to_uppercase();
            }
            prop_assert_eq!(format!(" {spaced}\n").parse::<Code>(), Ok(code));
        }

        #[test]
        fn another_word_is_another_code_and_a_slip_is_corrected(code in any_code(), place in 0..WORDS, by in 1u8..) {
            let mut other = code;
            other.secret[place] = other.secret[place].wrapping_add(by);
            prop_assert_ne!(other.to_string().parse::<Code>(), Ok(code));
            let written = code.to_string();
            prop_assert_eq!(written.rsplit_once('-').unwrap().0.parse::<Code>(), Ok(code));
            let mut words: Vec<String> = written.split('-').map(str::to_owned).collect();
            words[place + 1].insert(2, 'q');
            let refused = words.join("-").parse::<Code>().unwrap_err();
            prop_assert!(refused.to_string().contains("did you mean"), "{}", refused);
        }

        #[test]
        fn a_slip_that_makes_another_word_or_number_does_not_fit_the_check_word(code in any_code(), place in 0..=ALL_WORDS, by in 1u8..) {
            let number = code.number.to_be_bytes()[1].max(1);
            let code = Code::new(number.into(), code.secret).unwrap();
            let other = match place {
                0 => Code::new(number.wrapping_add(by).max(1).into(), code.secret).unwrap(),
                _ => code,
            };
            prop_assume!(place > 0 || other != code);
            let mut bytes = [code.secret[0], code.secret[1], code.secret[2], code.check()];
            if let Some(at) = place.checked_sub(1) {
                bytes[at] = bytes[at].wrapping_add(by);
            }
            let text = format!("{}-{}", other.number, pgp_words::to_words(&bytes).join("-"));
            prop_assert_eq!(text.parse::<Code>(), Err(CodeError::Check));
            let [one, two, three] = code.secret;
            prop_assume!(one != three);
            let swapped = pgp_words::to_words(&[three, two, one, code.check()]).join("-");
            prop_assert_eq!(format!("{number}-{swapped}").parse::<Code>(), Err(CodeError::Check));
        }

        #[test]
        fn any_text_is_a_code_or_refused(text in ".{0,60}") {
            let _ = (Code::is_meant_by(&text), text.parse::<Code>());
        }
    }

    #[test]
    fn the_list_has_256_words_for_each_place_and_none_twice() {
        let all: std::collections::BTreeSet<&str> = LIST.iter().copied().collect();
        assert_eq!((LIST.len(), all.len()), (512, 512));
        let plain = |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase());
        assert!(all.iter().all(plain));
        assert_eq!(words_at(0).next(), Some("aardvark"));
        assert_eq!(words_at(1).next(), Some("adroitness"));
        assert_eq!(words_at(2).last(), Some("zulu"));
        assert_eq!(words_at(3).last(), Some("yucatan"));
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        let refused = |text: &str| text.parse::<Code>().unwrap_err().to_string();
        let right = Code::new(7, [0x45, 0x6d, 0x2d]).unwrap();
        assert_eq!(right.to_string(), "7-crusade-hazardous-button-rebellion");
        assert_eq!("7-crusade-hazardous-button".parse(), Ok(right));
        assert_eq!(format!("{right:?}"), "Code(7-...)");
        assert!(refused("0-crusade-hazardous-button").contains("from 1 to 9999"));
        assert!(refused("99999-crusade-hazardous-button").contains("'99999'"));
        assert!(refused("crusade-hazardous-button").contains("'crusade'"));
        assert!(refused("7-crusade-hazardous").ends_with("this one has 2"));
        assert!(refused("7-hazardous-crusade-button").contains("two are swapped"));
        assert!(refused("7-crusade-hazzardous-button").contains("mean 'hazardous'?"));
        assert_eq!(
            refused("7-xylophonist-hazardous-button"),
            "'xylophonist' is not a word of any code"
        );
    }

    #[test]
    fn names_and_tickets_are_no_codes() {
        let name = "7".repeat(64);
        for other in [name.as_str(), "3fa9c2", "whimbrel1qqq", "7", "", "a-7"] {
            assert!(!Code::is_meant_by(other), "{other}");
        }
    }
}
