//! Parsing of management Interests.

use whimbrel_ndn_packet::{ComponentRef, InterestRef, types as ndn};

/// A parsed name under `/localhost/nfd` or `/localhop/nfd`.
pub(crate) struct Request<'a> {
    pub(crate) interest: InterestRef<'a>,
    /// Under `/localhop/nfd`: from a neighbour, or from this machine in the same form.
    pub(crate) remote: bool,
    /// It came from a program on this machine; false until checked.
    pub(crate) of_this_machine: bool,
    pub(crate) module: &'a str,
    pub(crate) verb: &'a str,
    /// The components after the verb, without the digest of ApplicationParameters.
    pub(crate) rest: Vec<ComponentRef<'a>>,
}

impl<'a> Request<'a> {
    /// Parses a name; `None` if it has another form.
    pub(crate) fn of(interest: InterestRef<'a>) -> Option<Request<'a>> {
        let mut components = interest.name.components();
        let mut word = || {
            let component = components.next()?;
            let generic = u64::from(component.typ()) == ndn::GENERIC_COMPONENT;
            core::str::from_utf8(component.value())
                .ok()
                .filter(|_| generic)
        };
        let remote = match word()? {
            "localhost" => false,
            "localhop" => true,
            _ => return None,
        };
        if word()? != "nfd" {
            return None;
        }
        let (module, verb) = (word()?, word()?);
        let rest = components
            .filter(|component| u64::from(component.typ()) != ndn::PARAMETERS_SHA256_DIGEST)
            .collect();
        Some(Request {
            interest,
            remote,
            of_this_machine: false,
            module,
            verb,
            rest,
        })
    }

    /// Returns true for a neighbour's request, which needs a key that this router trusts.
    pub(crate) const fn is_strangers(&self) -> bool {
        self.remote && !self.of_this_machine
    }

    /// Returns the version and segment number at the end of the name, and the number of components
    /// before them.
    pub(crate) fn version_and_segment(&self) -> Option<(usize, u64, Option<u64>)> {
        let name = self.interest.name;
        let len = name.len();
        let last = name.last()?;
        if let Some(version) = last.number_of(ndn::VERSION) {
            return Some((len - 1, version, None));
        }
        let segment = last.number_of(ndn::SEGMENT)?;
        let before = len.checked_sub(2)?;
        let version = name.get(before)?.number_of(ndn::VERSION)?;
        Some((before, version, Some(segment)))
    }
}
