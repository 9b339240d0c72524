//! The commands of the protocol, and their parameters.

use super::ControlParameters;

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is named as in the protocol")]
pub enum Verb {
    FacesCreate,
    FacesUpdate,
    FacesDestroy,
    FibAddNextHop,
    FibRemoveNextHop,
    RibRegister,
    RibUnregister,
    StrategyChoiceSet,
    StrategyChoiceUnset,
    CsConfig,
    CsErase,
}

/// Why a command cannot be carried out with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// A required parameter is missing.
    #[error("{}/{} needs {parameter}", verb.module(), verb.name())]
    Missing {
        /// The command.
        verb: Verb,
        /// The parameter, as the protocol writes it.
        parameter: &'static str,
    },
    /// A parameter is not allowed.
    #[error("{}/{} does not accept {parameter}", verb.module(), verb.name())]
    Extra {
        /// The command.
        verb: Verb,
        /// The parameter, as the protocol writes it.
        parameter: &'static str,
    },
    /// Flags without Mask, or the other way round.
    #[error("Flags and Mask must come together: Mask selects the bits of Flags")]
    Mask,
}

struct Row {
    verb: Verb,
    module: &'static str,
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
}

const fn row(
    verb: Verb,
    module: &'static str,
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
) -> Row {
    Row {
        verb,
        module,
        name,
        required,
        optional,
    }
}

/// In the order of [`Verb`].
#[rustfmt::skip]
static ROWS: [Row; 11] = [
    row(Verb::FacesCreate, "faces", "create", &["Uri"], &[
        "LocalUri", "FacePersistency", "BaseCongestionMarkingInterval",
        "DefaultCongestionThreshold", "Mtu", "Flags", "Mask",
    ]),
    row(Verb::FacesUpdate, "faces", "update", &[], &[
        "FaceId", "FacePersistency", "BaseCongestionMarkingInterval",
        "DefaultCongestionThreshold", "Mtu", "Flags", "Mask",
    ]),
    row(Verb::FacesDestroy, "faces", "destroy", &["FaceId"], &[]),
    row(Verb::FibAddNextHop, "fib", "add-nexthop", &["Name"], &["FaceId", "Cost"]),
    row(Verb::FibRemoveNextHop, "fib", "remove-nexthop", &["Name"], &["FaceId"]),
    row(Verb::RibRegister, "rib", "register", &["Name"], &[
        "FaceId", "Origin", "Cost", "Flags", "ExpirationPeriod",
    ]),
    row(Verb::RibUnregister, "rib", "unregister", &["Name"], &["FaceId", "Origin"]),
    row(Verb::StrategyChoiceSet, "strategy-choice", "set", &["Name", "Strategy"], &[]),
    row(Verb::StrategyChoiceUnset, "strategy-choice", "unset", &["Name"], &[]),
    row(Verb::CsConfig, "cs", "config", &[], &["Capacity", "Flags", "Mask"]),
    row(Verb::CsErase, "cs", "erase", &["Name"], &["Count"]),
];

impl Verb {
    /// Finds a command by module and verb, such as `faces`, `create`.
    pub fn find(module: &str, name: &str) -> Option<Verb> {
        let is_it = |row: &&Row| row.module == module && row.name == name;
        ROWS.iter().find(is_it).map(|row| row.verb)
    }

    fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// Returns the module in its name.
    pub fn module(self) -> &'static str {
        self.row().module
    }

    /// Returns the verb in its name.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Checks that a command has all its required parameters and only allowed ones.
    pub fn check(self, parameters: &ControlParameters) -> Result<(), ParameterError> {
        let Row {
            required, optional, ..
        } = self.row();
        let is_present = |name: &str| parameters.present().any(|present| present == name);
        if let Some(parameter) = required.iter().find(|name| !is_present(name)) {
            return Err(ParameterError::Missing {
                verb: self,
                parameter,
            });
        }
        let is_known = |name: &&str| required.contains(name) || optional.contains(name);
        if let Some(parameter) = parameters.present().find(|name| !is_known(name)) {
            return Err(ParameterError::Extra {
                verb: self,
                parameter,
            });
        }
        let is_masked = optional.contains(&"Mask");
        if is_masked && parameters.flags.is_some() != parameters.mask.is_some() {
            return Err(ParameterError::Mask);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_found_by_its_name_and_only_by_it() {
        for (place, row) in ROWS.iter().enumerate() {
            assert_eq!(row.verb as usize, place);
            assert_eq!(Verb::find(row.module, row.name), Some(row.verb));
        }
        assert_eq!(Verb::find("faces", "list"), None);
        assert_eq!(Verb::find("rib", "create"), None);
    }

    #[test]
    fn parameters_are_those_that_the_command_takes() {
        let face = ControlParameters {
            face_id: Some(262),
            ..ControlParameters::default()
        };
        assert_eq!(Verb::FacesDestroy.check(&face), Ok(()));
        let refusal = |verb: Verb, parameters: &ControlParameters| {
            verb.check(parameters).unwrap_err().to_string()
        };
        assert_eq!(refusal(Verb::CsErase, &face), "cs/erase needs Name");
        assert_eq!(
            refusal(Verb::CsConfig, &face),
            "cs/config does not accept FaceId"
        );
        let unmasked = ControlParameters {
            flags: Some(1),
            ..face
        };
        assert_eq!(
            Verb::FacesUpdate.check(&unmasked),
            Err(ParameterError::Mask)
        );
        // All flags of a route are significant.
        let route = ControlParameters {
            name: Some("/a".parse().unwrap()),
            ..unmasked
        };
        assert_eq!(Verb::RibRegister.check(&route), Ok(()));
    }
}
