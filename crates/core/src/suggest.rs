//! "Did you mean": the known word that a person may have meant by an unknown one.

/// Maximum of words that [`hint`] lists.
const SHOWN: usize = 12;

/// Returns the candidate that a person may have meant by `text`: at most a third of its letters
/// differ.
pub fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |candidate: &str| strsim::damerau_levenshtein(text, candidate);
    candidates
        .into_iter()
        .map(|candidate| (distance(candidate), candidate))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= text.chars().count().max(3) / 3)
        .map(|(_, candidate)| candidate)
}

/// The suffix for "there is no such `text`": "; did you mean 'x'?", or the known words.
pub fn hint<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    let candidates: Vec<&str> = candidates.into_iter().collect();
    match nearest(text, candidates.iter().copied()) {
        Some(near) => format!("; did you mean '{near}'?"),
        None if candidates.is_empty() => String::new(),
        None if candidates.len() > SHOWN => {
            format!("; there are {} ...", candidates[..SHOWN].join(", "))
        }
        None => format!("; there are {}", candidates.join(", ")),
    }
}

/// Returns a serde parser's message about a key or a value, with the nearest known one if it
/// complains of an unknown one. `also` are known words in addition to those that the parser lists.
pub fn in_parse_error(message: &str, also: &[&str]) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let kinds = [("unknown field", "key"), ("unknown variant", "value")];
    let kind = kinds.iter().find(|(start, _)| message.starts_with(start));
    let (Some((_, kind)), Some(unknown)) = (kind, quoted.next()) else {
        return message.trim_end().to_owned();
    };
    let known: Vec<&str> = quoted.chain(also.iter().copied()).collect();
    match nearest(unknown, known.iter().copied()) {
        Some(near) => format!("unknown {kind} '{unknown}'; did you mean '{near}'?"),
        None => format!(
            "unknown {kind} '{unknown}'; known here: {}",
            known.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_corrected_and_another_word_is_not() {
        let known = ["north", "south"];
        assert_eq!(nearest("nroth", known), Some("north"));
        assert_eq!(nearest("west", known), None);
        assert_eq!(nearest("x", []), None);
        assert_eq!(hint("nroth", known), "; did you mean 'north'?");
        assert_eq!(hint("west", known), "; there are north, south");
        assert_eq!(hint("west", []), "");
        let many: Vec<String> = (0..99).map(|n| format!("name-{n}")).collect();
        let hint = hint("west", many.iter().map(String::as_str));
        assert!(
            hint.contains("name-11 ...") && !hint.contains("name-12"),
            "{hint}"
        );
    }

    #[test]
    fn a_parsers_complaint_names_the_nearest_known_word() {
        let field = "unknown field `dealy`, expected one of `rate`, `delay`";
        assert_eq!(
            in_parse_error(field, &[]),
            "unknown key 'dealy'; did you mean 'delay'?"
        );
        let variant = "unknown variant `zebra`, expected `on` or `off`";
        assert_eq!(
            in_parse_error(variant, &["auto"]),
            "unknown value 'zebra'; known here: on, off, auto"
        );
        assert_eq!(in_parse_error("invalid type\n", &[]), "invalid type");
    }
}
