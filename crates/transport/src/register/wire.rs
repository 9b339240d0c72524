//! The wire format of the two management commands that a producer needs.
//!
//! Facts: NFD Management protocol ("ControlCommand", "RibMgmt"):
//! `/localhost/nfd/rib/register/PARAMETERS` as a signed Interest, answered by a Data whose content
//! is a ControlResponse. TLV-TYPEs as in ndn-cxx `encoding/tlv-nfd`. Pitfalls of other
//! implementations: signed Interests of packet format v0.3 and integers that are not minimal.

use core::time::Duration;

use whimbrel_ndn_packet::{Component, Name, tlv, types};

const CONTROL_PARAMETERS: u64 = 0x68;
const FACE_ID: u64 = 0x69;
const COST: u64 = 0x6a;
const FLAGS: u64 = 0x6c;
const EXPIRATION_PERIOD: u64 = 0x6d;
const ORIGIN: u64 = 0x6f;
const CONTROL_RESPONSE: u64 = 0x65;
const STATUS_CODE: u64 = 0x66;
const STATUS_TEXT: u64 = 0x67;

/// Route flag: longer prefixes inherit the route (NFD's `CHILD_INHERIT`, its default).
pub const CHILD_INHERIT: u64 = 1;
/// Route flag: shorter prefixes' routes do not apply below this one (`CAPTURE`).
pub const CAPTURE: u64 = 2;

/// The parameters of a register or unregister command; the forwarder chooses those that are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteParameters {
    /// The prefix.
    pub name: Name,
    /// The next hop; `None` is the face that the command arrives on.
    pub face_id: Option<u64>,
    /// The source of the route; `None` is an application.
    pub origin: Option<u64>,
    /// Cost; `None` is 0.
    pub cost: Option<u64>,
    /// [`CHILD_INHERIT`], [`CAPTURE`].
    pub flags: Option<u64>,
    /// The route's lifetime; `None` is that of the face.
    pub expiration: Option<Duration>,
}

impl RouteParameters {
    /// For `name`, with the forwarder's defaults.
    pub fn new(name: Name) -> RouteParameters {
        RouteParameters {
            name,
            ..RouteParameters::default()
        }
    }

    /// Encodes the ControlParameters element.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        tlv::write_nested(&mut out, CONTROL_PARAMETERS, |out| {
            self.name.as_ref().encode(out);
            let numbers = [
                (FACE_ID, self.face_id),
                (ORIGIN, self.origin),
                (COST, self.cost),
                (FLAGS, self.flags),
                (
                    EXPIRATION_PERIOD,
                    self.expiration.map(|period| period.as_millis() as u64),
                ),
            ];
            for (typ, number) in numbers {
                if let Some(number) = number {
                    tlv::write_integer_element(out, typ, number);
                }
            }
        });
        out
    }

    /// The command's name, before signing: `verb` is `register` or `unregister`.
    pub fn command(&self, verb: &str) -> Name {
        Name::of([
            Component::generic("localhost"),
            Component::generic("nfd"),
            Component::generic("rib"),
            Component::generic(verb.to_owned()),
            Component::generic(self.encode()),
        ])
    }
}

/// The forwarder's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlResponse {
    /// 200 is success; otherwise similar to HTTP's.
    pub code: u64,
    /// In words, at most 200 characters of it.
    pub text: String,
}

impl ControlResponse {
    /// Decodes a Data's content; `None` if it is not a ControlResponse.
    pub fn decode(content: &[u8]) -> Option<ControlResponse> {
        let outer = tlv::Reader::new(content).expect(CONTROL_RESPONSE).ok()?;
        let mut reader = tlv::Reader::new(outer.value);
        let code = reader.expect(STATUS_CODE).ok()?.integer().ok()?;
        let text = reader.expect(STATUS_TEXT).ok()?;
        let text = String::from_utf8_lossy(text.value)
            .chars()
            .take(200)
            .collect();
        Some(ControlResponse { code, text })
    }

    /// Encodes the element, for forwarders in tests.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        tlv::write_nested(&mut out, CONTROL_RESPONSE, |out| {
            tlv::write_integer_element(out, STATUS_CODE, self.code);
            tlv::write_element(out, STATUS_TEXT, self.text.as_bytes());
        });
        out
    }
}

/// Decodes a command's name, for forwarders in tests: returns the verb and the prefix.
pub fn read_command(name: whimbrel_ndn_packet::NameRef<'_>) -> Option<(String, Name)> {
    let verb = String::from_utf8(name.get(3)?.value().to_vec()).ok()?;
    let parameters = name.get(4)?;
    let outer = tlv::Reader::new(parameters.value())
        .expect(CONTROL_PARAMETERS)
        .ok()?;
    let prefix = tlv::Reader::new(outer.value).expect(types::NAME).ok()?;
    let prefix = whimbrel_ndn_packet::NameRef::from_value(prefix.value).ok()?;
    Some((verb, prefix.to_name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_in_the_order_and_types_of_the_protocol() {
        let parameters = RouteParameters {
            face_id: Some(300),
            origin: Some(0),
            cost: Some(10),
            flags: Some(CHILD_INHERIT | CAPTURE),
            expiration: Some(Duration::from_secs(60)),
            ..RouteParameters::new("/A".parse().unwrap())
        };
        let expected: &[u8] = &[
            0x68, 22, // ControlParameters
            0x07, 3, 0x08, 1, b'A', // Name
            0x69, 2, 1, 44, // FaceId
            0x6f, 1, 0, // Origin
            0x6a, 1, 10, // Cost
            0x6c, 1, 3, // Flags
            0x6d, 2, 0xea, 0x60, // ExpirationPeriod
        ];
        assert_eq!(parameters.encode(), expected);
        let command = parameters.command("register");
        assert!(
            command
                .to_string()
                .starts_with("/localhost/nfd/rib/register/h%16")
        );
        assert_eq!(
            read_command(command.as_ref()),
            Some((String::from("register"), parameters.name))
        );
    }

    #[test]
    fn a_response_has_a_code_and_a_text() {
        let response = ControlResponse {
            code: 403,
            text: String::from("authorization rejected"),
        };
        assert_eq!(ControlResponse::decode(&response.encode()), Some(response));
        assert_eq!(ControlResponse::decode(b"\x65\x00"), None);
        assert_eq!(ControlResponse::decode(b""), None);
    }
}
