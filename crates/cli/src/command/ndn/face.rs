//! `face list|show|create|update|destroy`.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use whimbrel_ndn_mgmt::Persistency;
use whimbrel_ndn_mgmt::{
    ControlParameters, FLAG_CONGESTION_MARKING, FLAG_LP_RELIABILITY, FaceQueryFilter,
};
use whimbrel_node::ndn::control::Control;

use super::face_text::{describe, face_json, flag_names, line, persistency_text};
use super::manage::{Change, Created, FaceTerm, Manage, create, face_uri, refusal};
use super::millis;
use super::words::{Keys, Values, on_off};
use crate::command::{Outcome, json_line, out};
use crate::exit::{Exit, Failure, MANAGEMENT_HELP};

#[derive(Subcommand, Debug)]
pub(crate) enum FaceCommand {
    /// List faces: all, or those with a remote or local FaceUri or a scheme
    #[command(after_help = format!("Examples:\n  whimbrel face list\n  whimbrel face list scheme udp4\n\n{MANAGEMENT_HELP}"))]
    List(List),
    /// Show one face
    #[command(after_help = format!("Example:\n  whimbrel face show 260\n\n{MANAGEMENT_HELP}"))]
    Show(Show),
    /// Create a face; an existing one is updated
    #[command(after_help = format!(
        "Examples:\n  whimbrel face create udp://router.example.net\n  \
         whimbrel face create remote udp://192.0.2.7 persistency permanent reliability on\n  \
         whimbrel face create ether://[08:00:27:01:01:01] --local dev://eth1 --mtu 9000\n\n{MANAGEMENT_HELP}"
    ))]
    Create(Box<Create>),
    /// Change a face
    #[command(after_help = format!("Example:\n  whimbrel face update 260 reliability on mtu 1400\n\n{MANAGEMENT_HELP}"))]
    Update(Box<Update>),
    /// Close a face
    #[command(after_help = format!("Example:\n  whimbrel face destroy udp://router.example.net\n\n{MANAGEMENT_HELP}"))]
    Destroy(Destroy),
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// [remote FACE-URI] [local FACE-URI] [scheme SCHEME]
    words: Vec<String>,
    /// The remote FaceUri
    #[arg(long, value_name = "FACE-URI")]
    remote: Option<String>,
    /// The local FaceUri
    #[arg(long, value_name = "FACE-URI")]
    local: Option<String>,
    /// The scheme of the FaceUris
    #[arg(long, value_name = "SCHEME")]
    scheme: Option<String>,
    #[command(flatten)]
    manage: Manage,
}

#[derive(Args, Debug)]
pub(crate) struct Show {
    /// [id] FACE-ID|FACE-URI
    #[arg(required = true)]
    words: Vec<String>,
    #[command(flatten)]
    manage: Manage,
}

/// The properties of a face that a command can set.
#[derive(Args, Debug)]
struct Settings {
    /// persistent (closed at an error) or permanent (opened again)
    #[arg(long, value_name = "HOW")]
    persistency: Option<String>,
    /// Link reliability: on or off
    #[arg(long, value_name = "ON|OFF")]
    reliability: Option<String>,
    /// Congestion marking: on or off
    #[arg(long, value_name = "ON|OFF")]
    congestion_marking: Option<String>,
    /// Time that the queue must exceed the threshold before the first mark, in milliseconds or with a unit
    #[arg(long, value_name = "TIME")]
    congestion_marking_interval: Option<String>,
    /// Queue threshold for congestion marks
    #[arg(long, value_name = "BYTES")]
    default_congestion_threshold: Option<String>,
    /// Largest frame, or auto
    #[arg(long, value_name = "BYTES|auto")]
    mtu: Option<String>,
}

impl Settings {
    fn options(&self) -> [(&'static str, &Option<String>); 6] {
        [
            ("persistency", &self.persistency),
            ("reliability", &self.reliability),
            ("congestion-marking", &self.congestion_marking),
            (
                "congestion-marking-interval",
                &self.congestion_marking_interval,
            ),
            (
                "default-congestion-threshold",
                &self.default_congestion_threshold,
            ),
            ("mtu", &self.mtu),
        ]
    }
}

const SETTINGS: &[&str] = &[
    "reliability",
    "congestion-marking",
    "congestion-marking-interval",
    "default-congestion-threshold",
    "mtu",
    "local",
];

#[derive(Args, Debug)]
pub(crate) struct Create {
    /// [remote] FACE-URI [[persistency] HOW] [local FACE-URI] and further options as key and value
    words: Vec<String>,
    /// The remote FaceUri
    #[arg(long, value_name = "FACE-URI")]
    remote: Option<String>,
    /// The local FaceUri, if it matters: dev://INTERFACE for Ethernet
    #[arg(long, value_name = "FACE-URI")]
    local: Option<String>,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    change: Change,
}

#[derive(Args, Debug)]
pub(crate) struct Update {
    /// [face] FACE-ID|FACE-URI and options as key and value
    #[arg(required = true)]
    words: Vec<String>,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    change: Change,
}

#[derive(Args, Debug)]
pub(crate) struct Destroy {
    /// [face] FACE-ID|FACE-URI
    #[arg(required = true)]
    words: Vec<String>,
    #[command(flatten)]
    change: Change,
}

pub(crate) fn run(command: FaceCommand) -> Outcome {
    match command {
        FaceCommand::List(arguments) => list(&arguments),
        FaceCommand::Show(arguments) => show(&arguments),
        FaceCommand::Create(arguments) => make(&arguments),
        FaceCommand::Update(arguments) => update(&arguments),
        FaceCommand::Destroy(arguments) => destroy(&arguments),
    }
}

fn list(arguments: &List) -> Outcome {
    let keys = Keys {
        ordered: &["remote"],
        named: &["local", "scheme"],
        flags: &[],
    };
    let options = [
        ("remote", &arguments.remote),
        ("local", &arguments.local),
        ("scheme", &arguments.scheme),
    ];
    let values = keys.read(&arguments.words, &options)?;
    let uri = |key| {
        values
            .text(key)
            .map(|text| face_uri(text).map(|uri| uri.to_string()))
            .transpose()
    };
    let filter = FaceQueryFilter {
        uri: uri("remote")?,
        local_uri: uri("local")?,
        uri_scheme: values.text("scheme").map(str::to_owned),
        ..FaceQueryFilter::default()
    };
    let faces = arguments.manage.look()?.faces(&filter)?;
    if arguments.manage.json {
        json_line(&faces.iter().map(face_json).collect::<Vec<_>>());
    } else {
        out(&faces
            .iter()
            .map(|face| format!("{}\n", line(face)))
            .collect::<String>());
    }
    if faces.is_empty() && filter != FaceQueryFilter::default() {
        return Err(Failure::new(Exit::NoFace, "no face matches"));
    }
    Ok(Exit::Done)
}

fn show(arguments: &Show) -> Outcome {
    let keys = Keys {
        ordered: &["id"],
        named: &[],
        flags: &[],
    };
    let values = keys.read(&arguments.words, &[])?;
    let term = FaceTerm::read(values.required("id")?)?;
    let mut control = arguments.manage.look()?;
    let face = term.find_one(&mut control)?;
    let link = link_of(&mut control, face.face_id);
    if arguments.manage.json {
        let mut value = face_json(&face);
        if let (Some(fields), Some(link)) = (value.as_object_mut(), link) {
            fields.insert("link".into(), link);
        }
        json_line(&value);
    } else {
        out(&describe(&face, link.as_ref()));
    }
    Ok(Exit::Done)
}

/// Returns a Whimbrel router's status of a face's link; other forwarders lack this dataset.
fn link_of(control: &mut Control, face: u64) -> Option<Value> {
    let links = links(control)?;
    links
        .as_array()?
        .iter()
        .find(|link| link["face"] == face)?
        .get("link")
        .cloned()
}

/// Returns a Whimbrel router's status of all links.
pub(super) fn links(control: &mut Control) -> Option<Value> {
    let content = control.content("whimbrel", "links").ok()?;
    serde_json::from_slice(&content).ok()
}

fn parameters(values: &Values) -> Result<ControlParameters, Failure> {
    let flags = [
        ("reliability", FLAG_LP_RELIABILITY),
        ("congestion-marking", FLAG_CONGESTION_MARKING),
    ];
    let mut parameters = ControlParameters {
        persistency: values.with("persistency", persistency)?,
        base_congestion_marking_interval: values.with("congestion-marking-interval", millis)?,
        default_congestion_threshold: values.value("default-congestion-threshold")?,
        mtu: values.with("mtu", mtu)?,
        ..ControlParameters::default()
    };
    for (key, flag) in flags {
        if let Some(on) = values.with(key, on_off)? {
            parameters = parameters.with_flag(flag, on);
        }
    }
    Ok(parameters)
}

fn persistency(text: &str) -> Result<Persistency, String> {
    match text {
        "persistent" => Ok(Persistency::Persistent),
        "permanent" => Ok(Persistency::Permanent),
        "on-demand" => Ok(Persistency::OnDemand),
        _ => Err(String::from("must be persistent or permanent")),
    }
}

/// Parses an MTU. `auto` is the largest, which the forwarder reduces to the link's.
fn mtu(text: &str) -> Result<u64, String> {
    if text == "auto" {
        Ok(u64::MAX)
    } else {
        text.parse()
            .map_err(|_| String::from("must be a number of bytes, or auto"))
    }
}

fn make(arguments: &Create) -> Outcome {
    let keys = Keys {
        ordered: &["remote", "persistency"],
        named: SETTINGS,
        flags: &[],
    };
    let mut options = arguments.settings.options().to_vec();
    options.extend([("remote", &arguments.remote), ("local", &arguments.local)]);
    let values = keys.read(&arguments.words, &options)?;
    let remote = face_uri(values.required("remote")?)?;
    let local = values.text("local").map(face_uri).transpose()?;
    let asked = parameters(&values)?;
    let wish = ControlParameters {
        uri: Some(remote.to_string()),
        local_uri: local.map(|local| local.to_string()),
        ..asked.clone()
    };
    let mut control = arguments.change.control()?;
    let json = arguments.change.manage.json;
    match create(&mut control, &wish)? {
        Created::New(made) => told(json, "face-created", &made),
        Created::Existed(existing) if asked == ControlParameters::default() => {
            told(json, "face-exists", &existing);
        }
        Created::Existed(existing) => {
            let change = ControlParameters {
                face_id: existing.face_id,
                ..asked
            };
            let changed = control.command("faces", "update", &change)?;
            let now = ControlParameters {
                uri: existing.uri,
                local_uri: existing.local_uri,
                ..changed
            };
            told(json, "face-updated", &now);
        }
    }
    Ok(Exit::Done)
}

fn update(arguments: &Update) -> Outcome {
    let keys = Keys {
        ordered: &["face"],
        named: &[
            "persistency",
            "reliability",
            "congestion-marking",
            "congestion-marking-interval",
            "default-congestion-threshold",
            "mtu",
        ],
        flags: &[],
    };
    let values = keys.read(&arguments.words, &arguments.settings.options())?;
    let asked = parameters(&values)?;
    if asked == ControlParameters::default() {
        return Err(Failure::new(
            Exit::Usage,
            "no change given: add at least one option, as mtu 1400",
        ));
    }
    let mut control = arguments.change.control()?;
    let face = FaceTerm::read(values.required("face")?)?.find_one(&mut control)?;
    let change = ControlParameters {
        face_id: Some(face.face_id),
        ..asked
    };
    let changed = control
        .command("faces", "update", &change)
        .map_err(no_face)?;
    let now = ControlParameters {
        uri: Some(face.uri),
        local_uri: Some(face.local_uri),
        ..changed
    };
    told(arguments.change.manage.json, "face-updated", &now);
    Ok(Exit::Done)
}

fn destroy(arguments: &Destroy) -> Outcome {
    let keys = Keys {
        ordered: &["face"],
        named: &[],
        flags: &[],
    };
    let values = keys.read(&arguments.words, &[])?;
    let term = FaceTerm::read(values.required("face")?)?;
    let mut control = arguments.change.control()?;
    let face = term.find_one(&mut control)?;
    let wish = ControlParameters {
        face_id: Some(face.face_id),
        ..ControlParameters::default()
    };
    control
        .command("faces", "destroy", &wish)
        .map_err(no_face)?;
    let gone = ControlParameters {
        uri: Some(face.uri),
        local_uri: Some(face.local_uri),
        persistency: Some(face.persistency),
        ..wish
    };
    told(arguments.change.manage.json, "face-destroyed", &gone);
    Ok(Exit::Done)
}

fn no_face(error: whimbrel_node::ndn::control::ControlError) -> Failure {
    match refusal(&error) {
        Some(404) => Failure::new(Exit::NoFace, error),
        _ => error.into(),
    }
}

/// Prints the outcome for a face, in the words of `nfdc`.
fn told(json: bool, what: &str, face: &ControlParameters) {
    if json {
        return json_line(&json!({
            "event": what,
            "face": face.face_id,
            "remote": face.uri,
            "local": face.local_uri,
            "persistency": face.persistency.map(persistency_text),
            "flags": face.flags.map(flag_names),
            "mtu": face.mtu,
        }));
    }
    let mut text = format!("{what} id={}", face.face_id.unwrap_or_default());
    let uris = [("local", &face.local_uri), ("remote", &face.uri)];
    for (key, value) in uris
        .into_iter()
        .filter_map(|(key, value)| Some((key, value.as_ref()?)))
    {
        text += &format!(" {key}={value}");
    }
    if let Some(persistency) = face.persistency {
        text += &format!(" persistency={}", persistency_text(persistency));
    }
    if let Some(flags) = face.flags {
        let on = |bit| if flags & bit == 0 { "off" } else { "on" };
        text += &format!(
            " reliability={} congestion-marking={}",
            on(FLAG_LP_RELIABILITY),
            on(FLAG_CONGESTION_MARKING)
        );
    }
    if let Some(mtu) = face.mtu {
        text += &format!(" mtu={mtu}");
    }
    out(&format!("{text}\n"));
}
