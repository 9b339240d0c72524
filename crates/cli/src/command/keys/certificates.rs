//! Certificates: shown, issued, installed, listed.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use whimbrel_core::units::Span;
use whimbrel_keychain::{Keychain, SignBy, text};
use whimbrel_ndn_packet::validity::time_text;
use whimbrel_ndn_packet::{
    Certificate, CertificateDraft, Component, KeyLocator, Name, ValidityPeriod,
};

use super::private::certificate_of;
use super::{KeychainPlace, key_of, name, unix_micros, write_text};
use crate::command::ndn::verify::read_certificate;
use crate::command::{Outcome, json_line, out};
use crate::exit::{Exit, Failure};

#[derive(Subcommand, Debug)]
pub(crate) enum CertificateCommand {
    /// Print a certificate as ndnsec does (base64), or as text
    #[command(
        after_help = "Examples:\n  whimbrel key cert show /example/alice > alice.cert\n  \
                            whimbrel key cert show --text --file alice.cert"
    )]
    Show(Show),
    /// Issue a certificate for another owner's key, from a request or another certificate
    #[command(
        after_help = "Example:\n  whimbrel key cert issue alice.req --by /example --valid-for \"365 d\" -o alice.cert"
    )]
    Issue(Issue),
    /// Put a certificate into the keychain
    #[command(after_help = "Example:\n  whimbrel key cert install alice.cert")]
    Install(Install),
    /// List certificates
    #[command(after_help = "Example:\n  whimbrel key cert list /example/alice")]
    List(List),
    /// Delete a certificate
    #[command(
        after_help = "Example:\n  whimbrel key cert delete /example/alice/KEY/%8F%01/self/v=1700000000000000"
    )]
    Delete(Delete),
}

#[derive(Args, Debug)]
pub(crate) struct Show {
    /// A certificate, or its key or identity; by default the default identity
    #[arg(value_parser = name)]
    name: Option<Name>,
    /// Read the certificate from a file; - for standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "name")]
    file: Option<PathBuf>,
    /// Print as text
    #[arg(short, long)]
    text: bool,
    #[command(flatten)]
    place: KeychainPlace,
    /// Print JSON
    #[arg(long, conflicts_with = "text")]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Issue {
    /// The request (`whimbrel key sign-req`); - for standard input
    request: PathBuf,
    /// The issuer: an identity, a key, or a certificate; by default the default identity
    #[arg(long, value_name = "NAME", value_parser = name)]
    by: Option<Name>,
    /// The issuer component of the certificate's name
    #[arg(short, long, value_name = "WORD", default_value = "NA")]
    issuer_id: Component,
    /// Validity period
    #[arg(long, value_name = "TIME", default_value = "365 d", value_parser = Span::with_unit)]
    valid_for: Span,
    /// Additional information about the owner, as fullname=Alice; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    info: Vec<String>,
    /// The file to write; by default standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    place: KeychainPlace,
}

#[derive(Args, Debug)]
pub(crate) struct Install {
    /// The certificate; - for standard input
    file: PathBuf,
    /// Make it its key's default certificate
    #[arg(long)]
    default: bool,
    #[command(flatten)]
    place: KeychainPlace,
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// Only those of this identity or key
    #[arg(value_parser = name)]
    name: Option<Name>,
    #[command(flatten)]
    place: KeychainPlace,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Delete {
    /// The certificate
    #[arg(value_parser = name)]
    name: Name,
    #[command(flatten)]
    place: KeychainPlace,
}

pub(super) fn run(command: &CertificateCommand) -> Outcome {
    match command {
        CertificateCommand::Show(arguments) => show(arguments),
        CertificateCommand::Issue(arguments) => issue(arguments),
        CertificateCommand::Install(arguments) => install(arguments),
        CertificateCommand::List(arguments) => list(arguments),
        CertificateCommand::Delete(arguments) => {
            arguments
                .place
                .open()?
                .delete_certificate(&arguments.name)?;
            Ok(Exit::Done)
        }
    }
}

fn show(arguments: &Show) -> Outcome {
    let certificate = match &arguments.file {
        Some(file) => read_certificate(file)?,
        None => {
            let keychain = arguments.place.open()?;
            let name = certificate_of(&keychain, arguments.name.as_ref())?;
            keychain.certificate(&name)?.clone()
        }
    };
    if arguments.json {
        json_line(&in_json(&certificate));
    } else if arguments.text {
        out(&describe(&certificate));
    } else {
        out(&text::encode(certificate.wire()));
    }
    Ok(Exit::Done)
}

fn issue(arguments: &Issue) -> Outcome {
    let keychain = arguments.place.open()?;
    let request = read_certificate(&arguments.request)?;
    if let Err(error) = request.verify(request.public_key()) {
        let text = format!(
            "{}: {error}: the requester does not have the private key",
            arguments.request.display()
        );
        return Err(Failure::new(Exit::Usage, text));
    }
    let signer = keychain.signer(&issuer(&keychain, arguments.by.as_ref())?)?;
    let now = unix_micros();
    let validity = ValidityPeriod::starting(now / 1_000_000, arguments.valid_for.0.as_secs());
    let mut draft = CertificateDraft::new(
        request.key_name().clone(),
        arguments.issuer_id.clone(),
        now,
        validity,
    );
    for info in &arguments.info {
        let (key, value) = info.split_once('=').ok_or_else(|| {
            Failure::new(
                Exit::Usage,
                format!("--info '{info}': KEY=VALUE, as fullname=Alice"),
            )
        })?;
        draft.description.push((key.to_owned(), value.to_owned()));
    }
    let certificate = draft
        .issue(request.public_key(), &signer)
        .map_err(|error| Failure::new(Exit::Other, error))?;
    write_text(
        arguments.output.as_deref(),
        &text::encode(certificate.wire()),
        false,
    )?;
    Ok(Exit::Done)
}

fn issuer(keychain: &Keychain, by: Option<&Name>) -> Result<SignBy, Failure> {
    match by {
        Some(by) if keychain.certificate(by).is_ok() => Ok(SignBy::Certificate(by.clone())),
        by => Ok(SignBy::Key(key_of(keychain, by)?)),
    }
}

fn install(arguments: &Install) -> Outcome {
    let certificate = read_certificate(&arguments.file)?;
    let name = certificate.name().clone();
    let mut keychain = arguments.place.open()?;
    keychain.add_certificate(certificate)?;
    if arguments.default {
        keychain.set_default_certificate(&name)?;
    }
    out(&format!("{name}\n"));
    Ok(Exit::Done)
}

fn list(arguments: &List) -> Outcome {
    let keychain = arguments.place.open()?;
    let wanted = |certificate: &&Certificate| {
        arguments
            .name
            .as_ref()
            .is_none_or(|name| name.as_ref().is_prefix_of(certificate.name().as_ref()))
    };
    let found: Vec<&Certificate> = keychain.certificates().filter(wanted).collect();
    if arguments.json {
        json_line(
            &found
                .iter()
                .map(|certificate| in_json(certificate))
                .collect::<Vec<_>>(),
        );
    } else {
        out(&found
            .iter()
            .map(|certificate| format!("{}\n", certificate.name()))
            .collect::<String>());
    }
    Ok(Exit::Done)
}

fn signed_by(certificate: &Certificate) -> Option<String> {
    certificate.locator().map(|locator| match locator {
        KeyLocator::Name(name) => name.to_string(),
        KeyLocator::Digest(digest) => format!("digest {}", hex::encode(digest)),
    })
}

fn describe(certificate: &Certificate) -> String {
    let validity = certificate.validity();
    let mut text = format!("{}\n", certificate.name());
    text += &format!(
        "  identity: {}\n  key: {}\n",
        certificate.identity(),
        certificate.public_key().key_type()
    );
    text += &format!(
        "  valid: {} to {}\n",
        time_text(validity.not_before),
        time_text(validity.not_after)
    );
    let by = signed_by(certificate).unwrap_or_else(|| String::from("unknown"));
    let own = if certificate.is_self_signed() {
        " (itself)"
    } else {
        ""
    };
    text += &format!("  signed by: {by}{own}\n");
    for (key, value) in certificate.description() {
        text += &format!("  {key}: {}\n", value.escape_debug());
    }
    text
}

fn in_json(certificate: &Certificate) -> Value {
    let validity = certificate.validity();
    json!({
        "certificate": certificate.name().to_string(),
        "key": certificate.key_name().to_string(),
        "identity": certificate.identity().to_string(),
        "type": certificate.public_key().key_type().to_string(),
        "not_before": validity.not_before,
        "not_after": validity.not_after,
        "signed_by": signed_by(certificate),
        "self_signed": certificate.is_self_signed(),
        "description": certificate.description().into_iter().collect::<std::collections::BTreeMap<_, _>>(),
    })
}
