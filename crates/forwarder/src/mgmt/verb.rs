//! The commands of the protocol: which parameters each takes, and what carries it out.

use whimbrel_core::Time;
use whimbrel_ndn_mgmt::{ControlParameters, ControlResponse};
use whimbrel_ndn_packet::Name;

use super::config::ManagementConfig;
use super::face_requests::Creations;
use super::host::FaceHost;
use super::{content_store, faces, fib, routes, strategies};
use crate::face::FaceId;
use crate::forwarder::Forwarder;

/// What a command works on.
pub(crate) struct Context<'a> {
    pub(crate) now: Time,
    /// The face that the command came from.
    pub(crate) from: FaceId,
    /// It came under `/localhop/nfd`.
    pub(crate) remote: bool,
    /// Name of the command Interest.
    pub(crate) command: &'a Name,
    pub(crate) forwarder: &'a mut Forwarder,
    pub(crate) host: &'a mut dyn FaceHost,
    pub(crate) creations: &'a mut Creations,
    pub(crate) config: &'a ManagementConfig,
    /// What management itself serves.
    pub(crate) own_prefixes: &'a [Name],
}

impl Context<'_> {
    /// The face that is meant: 0 and no number stand for the one that the command came from.
    pub(crate) fn face_meant(&self, parameters: &ControlParameters) -> FaceId {
        match parameters.face_id {
            None | Some(0) => self.from,
            Some(id) => FaceId(id),
        }
    }
}

/// What comes of a command.
pub(crate) enum Outcome {
    /// The answer.
    Now(ControlResponse),
    /// It is answered when a face has been created.
    Later,
}

impl From<ControlResponse> for Outcome {
    fn from(response: ControlResponse) -> Outcome {
        Outcome::Now(response)
    }
}

/// One command.
pub(crate) struct Verb {
    pub(crate) module: &'static str,
    pub(crate) verb: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
    pub(crate) run: fn(&mut Context<'_>, ControlParameters) -> Outcome,
}

const SETTINGS: [&str; 6] = [
    "FacePersistency",
    "BaseCongestionMarkingInterval",
    "DefaultCongestionThreshold",
    "Mtu",
    "Flags",
    "Mask",
];

static VERBS: [Verb; 11] = [
    Verb {
        module: "faces",
        verb: "create",
        required: &["Uri"],
        optional: &[
            "LocalUri",
            SETTINGS[0],
            SETTINGS[1],
            SETTINGS[2],
            SETTINGS[3],
            SETTINGS[4],
            SETTINGS[5],
        ],
        run: faces::create,
    },
    Verb {
        module: "faces",
        verb: "update",
        required: &[],
        optional: &[
            "FaceId",
            SETTINGS[0],
            SETTINGS[1],
            SETTINGS[2],
            SETTINGS[3],
            SETTINGS[4],
            SETTINGS[5],
        ],
        run: faces::update,
    },
    Verb {
        module: "faces",
        verb: "destroy",
        required: &["FaceId"],
        optional: &[],
        run: faces::destroy,
    },
    Verb {
        module: "fib",
        verb: "add-nexthop",
        required: &["Name"],
        optional: &["FaceId", "Cost"],
        run: fib::add_next_hop,
    },
    Verb {
        module: "fib",
        verb: "remove-nexthop",
        required: &["Name"],
        optional: &["FaceId"],
        run: fib::remove_next_hop,
    },
    Verb {
        module: "rib",
        verb: "register",
        required: &["Name"],
        optional: &["FaceId", "Origin", "Cost", "Flags", "ExpirationPeriod"],
        run: routes::register,
    },
    Verb {
        module: "rib",
        verb: "unregister",
        required: &["Name"],
        optional: &["FaceId", "Origin"],
        run: routes::unregister,
    },
    Verb {
        module: "strategy-choice",
        verb: "set",
        required: &["Name", "Strategy"],
        optional: &[],
        run: strategies::set,
    },
    Verb {
        module: "strategy-choice",
        verb: "unset",
        required: &["Name"],
        optional: &[],
        run: strategies::unset,
    },
    Verb {
        module: "cs",
        verb: "config",
        required: &[],
        optional: &["Capacity", "Flags", "Mask"],
        run: content_store::configure,
    },
    Verb {
        module: "cs",
        verb: "erase",
        required: &["Name"],
        optional: &["Count"],
        run: content_store::erase,
    },
];

impl Verb {
    pub(crate) fn find(module: &str, verb: &str) -> Option<&'static Verb> {
        VERBS
            .iter()
            .find(|known| known.module == module && known.verb == verb)
    }

    /// What is wrong with parameters, for a person.
    pub(crate) fn check(&self, parameters: &ControlParameters) -> Result<(), String> {
        let Verb { module, verb, .. } = self;
        if let Some(missing) = self
            .required
            .iter()
            .find(|name| !parameters.present().any(|present| present == **name))
        {
            return Err(format!("{module}/{verb} needs {missing}"));
        }
        let is_known = |name: &&str| self.required.contains(name) || self.optional.contains(name);
        if let Some(extra) = parameters.present().find(|name| !is_known(name)) {
            return Err(format!("{module}/{verb} does not take {extra}"));
        }
        let masked = self.optional.contains(&"Mask");
        if masked && parameters.flags.is_some() != parameters.mask.is_some() {
            return Err(
                "Flags and Mask go together: Mask says which bits of Flags are meant".to_owned(),
            );
        }
        Ok(())
    }
}

/// Refuses changes to the prefixes that the router itself serves: a program that took them could
/// answer in its place.
pub(crate) fn refuse_own_prefix(
    context: &Context<'_>,
    prefix: &Name,
) -> Result<(), ControlResponse> {
    let is_own = |own: &Name| own.as_ref().is_prefix_of(prefix.as_ref());
    match context.own_prefixes.iter().find(|own| is_own(own)) {
        None => Ok(()),
        Some(own) => Err(ControlResponse::new(
            403,
            format!("{own} and what is under it is served by the router itself"),
        )),
    }
}
