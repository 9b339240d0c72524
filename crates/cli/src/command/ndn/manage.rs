//! Common parts of the commands that manage a forwarder.

use clap::Args;
use whimbrel_ndn_mgmt::FaceUri;
use whimbrel_ndn_mgmt::{ControlParameters, FaceQueryFilter, FaceStatus, ForwarderStatus};
use whimbrel_node::ndn::client::{ClientError, canonical};
use whimbrel_node::ndn::control::{Control, ControlError};

use super::Reach;
use super::signing::SigningArguments;
use crate::exit::{Exit, Failure};

/// Arguments of all management commands.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct Manage {
    #[command(flatten)]
    reach: Reach,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Arguments of the commands that change something.
#[derive(Args, Debug, Clone)]
pub(crate) struct Change {
    #[command(flatten)]
    pub(super) manage: Manage,
    #[command(flatten)]
    signing: SigningArguments,
}

impl Manage {
    /// Connects without signing: for datasets only.
    pub(super) fn look(&self) -> Result<Control, Failure> {
        Ok(Control::new(
            self.uplink()?,
            std::sync::Arc::new(whimbrel_ndn_packet::DigestSigner),
        )?)
    }

    /// Returns true if an argument says which forwarder is meant.
    pub(super) fn names_a_forwarder(&self) -> bool {
        self.reach.transport.is_some()
    }

    fn uplink(&self) -> Result<whimbrel_node::ndn::client::Uplink, Failure> {
        self.reach.uplink()
    }
}

impl Change {
    /// Connects with signing: for commands.
    pub(super) fn control(&self) -> Result<Control, Failure> {
        let signer = self.signing.choose()?.signer;
        Ok(Control::new(self.manage.uplink()?, signer)?)
    }
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Failure {
        let exit = match &error {
            ControlError::Client(ClientError::Nobody { .. } | ClientError::NotPermitted { .. })
            | ControlError::Gone(_) => Exit::NoForwarder,
            ControlError::Client(_)
            | ControlError::Silent { .. }
            | ControlError::Nack { .. }
            | ControlError::Refused { .. }
            | ControlError::Malformed { .. } => Exit::Other,
        };
        Failure::new(exit, error)
    }
}

/// Returns the code with which a forwarder refused; `None` for any other error.
pub(super) const fn refusal(error: &ControlError) -> Option<u64> {
    match error {
        ControlError::Refused { response, .. } => Some(response.status_code),
        _ => None,
    }
}

/// Returns true for a Whimbrel router, which has datasets that other forwarders lack.
pub(super) fn is_whimbrel(general: &ForwarderStatus) -> bool {
    general
        .nfd_version
        .to_ascii_lowercase()
        .contains("whimbrel")
}

/// Returns a FaceUri in canonical form: resolves host names.
pub(super) fn face_uri(text: &str) -> Result<FaceUri, Failure> {
    let uri: FaceUri = text
        .parse()
        .map_err(|error| Failure::new(Exit::Usage, format!("'{text}': {error}")))?;
    canonical(&uri).map_err(|error| Failure::new(Exit::NotCanonical, format!("'{text}': {error}")))
}

/// A face as users name it: by its number or its remote FaceUri.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FaceTerm {
    Id(u64),
    Remote(FaceUri),
}

impl FaceTerm {
    pub(super) fn read(text: &str) -> Result<FaceTerm, Failure> {
        match text.parse() {
            Ok(id) => Ok(FaceTerm::Id(id)),
            Err(_) if text.contains("://") => Ok(FaceTerm::Remote(face_uri(text)?)),
            Err(_) => {
                let text = format!(
                    "'{text}' is neither a face number nor a FaceUri such as udp://192.0.2.7"
                );
                Err(Failure::new(Exit::Usage, text))
            }
        }
    }

    /// Returns the matching faces.
    pub(super) fn find(&self, control: &mut Control) -> Result<Vec<FaceStatus>, Failure> {
        let filter = match self {
            FaceTerm::Id(id) => FaceQueryFilter {
                face_id: Some(*id),
                ..FaceQueryFilter::default()
            },
            FaceTerm::Remote(uri) => FaceQueryFilter {
                uri: Some(uri.to_string()),
                ..FaceQueryFilter::default()
            },
        };
        Ok(control.faces(&filter)?)
    }

    /// Returns the one matching face.
    pub(super) fn find_one(&self, control: &mut Control) -> Result<FaceStatus, Failure> {
        let mut faces = self.find(control)?;
        match (faces.len(), faces.pop()) {
            (1, Some(face)) => Ok(face),
            (0, _) | (_, None) => Err(Failure::new(
                Exit::NoFace,
                format!("face {self} does not exist"),
            )),
            (count, _) => Err(Failure::new(
                Exit::Ambiguous,
                format!(
                    "{count} faces match {self}: name one by its number, see `whimbrel face list`"
                ),
            )),
        }
    }
}

impl std::fmt::Display for FaceTerm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FaceTerm::Id(id) => write!(f, "{id}"),
            FaceTerm::Remote(uri) => uri.fmt(f),
        }
    }
}

/// The outcome of a request to create a face.
pub(super) enum Created {
    New(ControlParameters),
    /// It existed already.
    Existed(ControlParameters),
}

/// Creates a face; an existing one counts as success.
pub(super) fn create(control: &mut Control, wish: &ControlParameters) -> Result<Created, Failure> {
    match control.command("faces", "create", wish) {
        Ok(made) => Ok(Created::New(made)),
        Err(ControlError::Refused { asked, response }) if response.status_code == 409 => {
            match response.parameters() {
                Ok(Some(existing)) if existing.face_id.is_some() => Ok(Created::Existed(existing)),
                _ => Err(ControlError::Refused { asked, response }.into()),
            }
        }
        Err(error) => Err(error.into()),
    }
}
