//! Counters of what was asked of a node's listeners by those who have no port.

use std::fmt::Error;

use whimbrel_link::hop::ReceptionCounters;

use super::family::Families;

pub(super) fn encode_callers(
    families: &mut Families<'_, '_>,
    c: &ReceptionCounters,
) -> Result<(), Error> {
    let outcomes = [
        ("answered", c.answered),
        ("cookie", c.cookies),
        ("limited", c.limited),
        ("admitted", c.admitted),
        ("not-admitted", c.not_admitted),
        ("bad-cookie", c.bad_cookies),
        ("bad-proof", c.bad_proofs),
        ("repeated", c.repeated),
        ("unknown-session", c.unknown_sessions),
        ("wrong-mode", c.wrong_mode),
        ("classical", c.classical),
        ("stranger", c.strangers),
    ];
    families.counters(
        "whimbrel_calls",
        "Frames of those that have no port yet, by what became of them",
        outcomes.map(|(outcome, count)| (vec![("outcome", outcome)], count)),
    )
}
