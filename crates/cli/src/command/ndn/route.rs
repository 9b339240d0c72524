//! `route list|show|add|remove`.

use std::collections::BTreeSet;
use std::fmt::Write;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use whimbrel_ndn_mgmt::{
    ControlParameters, ROUTE_CAPTURE, ROUTE_CHILD_INHERIT, RibEntry, RouteOrigin, RouteStatus,
};
use whimbrel_ndn_packet::Name;
use whimbrel_node::ndn::control::Control;

use super::manage::{Change, Created, FaceTerm, Manage, create};
use super::words::Keys;
use super::{in_millis, millis, name};
use crate::command::{Outcome, json_line, out};
use crate::exit::{Exit, Failure, MANAGEMENT_HELP};

#[derive(Subcommand, Debug)]
pub(crate) enum RouteCommand {
    /// List routes: all, or those of a face or an origin
    #[command(after_help = format!("Examples:\n  whimbrel route list\n  whimbrel route list origin static\n\n{MANAGEMENT_HELP}"))]
    List(List),
    /// Show the routes of one prefix
    #[command(after_help = format!("Example:\n  whimbrel route show /example\n\n{MANAGEMENT_HELP}"))]
    Show(Show),
    /// Add a route, or change it; a FaceUri without a face gets one
    #[command(after_help = format!(
        "Examples:\n  whimbrel route add / udp://router.example.net\n  \
         whimbrel route add prefix /example nexthop 260 cost 10\n\n{MANAGEMENT_HELP}"
    ))]
    Add(Add),
    /// Remove a route
    #[command(after_help = format!("Example:\n  whimbrel route remove /example 260\n\n{MANAGEMENT_HELP}"))]
    Remove(Remove),
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// [nexthop FACE-ID|FACE-URI] [origin ORIGIN]
    words: Vec<String>,
    /// The next hop of the routes
    #[arg(long, value_name = "FACE")]
    nexthop: Option<String>,
    /// The origin of the routes: app, static, nlsr ... or a number
    #[arg(long, value_name = "ORIGIN")]
    origin: Option<String>,
    #[command(flatten)]
    manage: Manage,
}

#[derive(Args, Debug)]
pub(crate) struct Show {
    /// [prefix] PREFIX
    #[arg(required = true)]
    words: Vec<String>,
    #[command(flatten)]
    manage: Manage,
}

#[derive(Args, Debug)]
pub(crate) struct Add {
    /// [prefix] PREFIX [nexthop] FACE-ID|FACE-URI and options as key and value
    words: Vec<String>,
    /// The prefix of the route
    #[arg(long, value_name = "NAME")]
    prefix: Option<String>,
    /// The next hop: the number of a face, or a FaceUri
    #[arg(long, value_name = "FACE")]
    nexthop: Option<String>,
    /// The origin: app, static, nlsr ... or a number; by default static
    #[arg(long, value_name = "ORIGIN")]
    origin: Option<String>,
    /// The cost, lower is preferred; by default 0
    #[arg(long, value_name = "N")]
    cost: Option<String>,
    /// Expires after this time, in milliseconds or with a unit
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
    /// Do not apply it to longer prefixes that have routes of their own
    #[arg(long)]
    no_inherit: bool,
    /// Do not apply the routes of shorter prefixes here
    #[arg(long)]
    capture: bool,
    #[command(flatten)]
    change: Change,
}

#[derive(Args, Debug)]
pub(crate) struct Remove {
    /// [prefix] PREFIX [nexthop] FACE-ID|FACE-URI [origin ORIGIN]
    words: Vec<String>,
    /// The prefix of the route
    #[arg(long, value_name = "NAME")]
    prefix: Option<String>,
    /// The next hop: the number of a face, or a FaceUri
    #[arg(long, value_name = "FACE")]
    nexthop: Option<String>,
    /// The origin; by default static
    #[arg(long, value_name = "ORIGIN")]
    origin: Option<String>,
    #[command(flatten)]
    change: Change,
}

pub(crate) fn run(command: RouteCommand) -> Outcome {
    match command {
        RouteCommand::List(arguments) => list(&arguments),
        RouteCommand::Show(arguments) => show(&arguments),
        RouteCommand::Add(arguments) => add(&arguments),
        RouteCommand::Remove(arguments) => remove(&arguments),
    }
}

fn list(arguments: &List) -> Outcome {
    let keys = Keys {
        ordered: &["nexthop"],
        named: &["origin"],
        flags: &[],
    };
    let options = [
        ("nexthop", &arguments.nexthop),
        ("origin", &arguments.origin),
    ];
    let values = keys.read(&arguments.words, &options)?;
    let origin = values.value::<RouteOrigin>("origin")?;
    let nexthop = values.text("nexthop").map(FaceTerm::read).transpose()?;
    let mut control = arguments.manage.look()?;
    let faces = nexthop.map(|term| faces(&mut control, &term)).transpose()?;
    let wanted = |route: &RouteStatus| {
        origin.is_none_or(|origin| origin.0 == route.origin)
            && faces
                .as_ref()
                .is_none_or(|faces| faces.contains(&route.face_id))
    };
    let found = routes(&mut control, |_, route| wanted(route))?;
    print(arguments.manage.json, &found);
    // An empty table is not a failure; a filter without a match is.
    if found.is_empty() && (origin.is_some() || faces.is_some()) {
        return Err(Failure::new(Exit::NoRoute, "no route matches"));
    }
    Ok(Exit::Done)
}

fn show(arguments: &Show) -> Outcome {
    let keys = Keys {
        ordered: &["prefix"],
        named: &[],
        flags: &[],
    };
    let values = keys.read(&arguments.words, &[])?;
    values.required("prefix")?;
    let prefix = values.with("prefix", name)?.unwrap_or_default();
    let found = routes(&mut arguments.manage.look()?, |of, _| *of == prefix)?;
    print(arguments.manage.json, &found);
    if found.is_empty() {
        return Err(Failure::new(
            Exit::NoRoute,
            format!("no route for {prefix}"),
        ));
    }
    Ok(Exit::Done)
}

fn routes(
    control: &mut Control,
    wanted: impl Fn(&Name, &RouteStatus) -> bool,
) -> Result<Vec<(Name, RouteStatus)>, Failure> {
    let entries: Vec<RibEntry> = control.list("rib", "list")?;
    let all = entries.into_iter().flat_map(|entry| {
        let RibEntry { name, routes } = entry;
        routes.into_iter().map(move |route| (name.clone(), route))
    });
    let mut found: Vec<(Name, RouteStatus)> =
        all.filter(|(name, route)| wanted(name, route)).collect();
    found.sort_by_cached_key(|(name, route)| (name.to_string(), route.face_id, route.origin));
    Ok(found)
}

/// Returns the numbers of the faces that match `term`: at least one.
fn faces(control: &mut Control, term: &FaceTerm) -> Result<Vec<u64>, Failure> {
    let faces = term.find(control)?;
    if faces.is_empty() {
        return Err(Failure::new(
            Exit::NoFace,
            format!("face {term} does not exist"),
        ));
    }
    Ok(faces.iter().map(|face| face.face_id).collect())
}

fn add(arguments: &Add) -> Outcome {
    let keys = Keys {
        ordered: &["prefix", "nexthop"],
        named: &["origin", "cost", "expires"],
        flags: &["no-inherit", "capture"],
    };
    let options = [
        ("prefix", &arguments.prefix),
        ("nexthop", &arguments.nexthop),
        ("origin", &arguments.origin),
        ("cost", &arguments.cost),
        ("expires", &arguments.expires),
    ];
    let values = keys.read(&arguments.words, &options)?;
    values.required("prefix")?;
    let term = FaceTerm::read(values.required("nexthop")?)?;
    let inherit = !(arguments.no_inherit || values.flag("no-inherit"));
    let capture = arguments.capture || values.flag("capture");
    let flags = u64::from(inherit) * ROUTE_CHILD_INHERIT + u64::from(capture) * ROUTE_CAPTURE;
    let wish = ControlParameters {
        name: values.with("prefix", name)?,
        origin: Some(
            values
                .value::<RouteOrigin>("origin")?
                .unwrap_or(RouteOrigin::STATIC)
                .0,
        ),
        cost: Some(values.value("cost")?.unwrap_or(0)),
        flags: Some(flags),
        expiration_period: values.with("expires", millis)?,
        ..ControlParameters::default()
    };
    let mut control = arguments.change.control()?;
    let json = arguments.change.manage.json;
    let face_id = next_hop(&mut control, &term, json)?;
    let wish = ControlParameters {
        face_id: Some(face_id),
        ..wish
    };
    let made = control.command("rib", "register", &wish)?;
    let made = if made.name.is_some() { made } else { wish };
    told(
        json,
        if json {
            "route-added"
        } else {
            "route-add-accepted"
        },
        &made,
    );
    Ok(Exit::Done)
}

/// Returns the one face that matches `term`; creates one for a FaceUri without a face.
fn next_hop(control: &mut Control, term: &FaceTerm, json: bool) -> Result<u64, Failure> {
    let found = match term {
        FaceTerm::Remote(uri) if term.find(control)?.is_empty() => {
            let wish = ControlParameters {
                uri: Some(uri.to_string()),
                ..ControlParameters::default()
            };
            let made = match create(control, &wish)? {
                Created::New(made) | Created::Existed(made) => made.face_id,
            };
            if !json && let Some(id) = made {
                super::note(&format!("created face {id} to {uri}"));
            }
            made
        }
        _ => Some(term.find_one(control)?.face_id),
    };
    found.ok_or_else(|| {
        Failure::new(
            Exit::Other,
            "the forwarder's answer lacks the number of the created face",
        )
    })
}

fn remove(arguments: &Remove) -> Outcome {
    let keys = Keys {
        ordered: &["prefix", "nexthop"],
        named: &["origin"],
        flags: &[],
    };
    let options = [
        ("prefix", &arguments.prefix),
        ("nexthop", &arguments.nexthop),
        ("origin", &arguments.origin),
    ];
    let values = keys.read(&arguments.words, &options)?;
    values.required("prefix")?;
    let term = FaceTerm::read(values.required("nexthop")?)?;
    let wish = ControlParameters {
        name: values.with("prefix", name)?,
        origin: Some(
            values
                .value::<RouteOrigin>("origin")?
                .unwrap_or(RouteOrigin::STATIC)
                .0,
        ),
        ..ControlParameters::default()
    };
    let mut control = arguments.change.control()?;
    let through = faces(&mut control, &term)?;
    // A forwarder also answers with success where there is nothing to remove.
    let there = routes(&mut control, |prefix, route| {
        wish.name.as_ref() == Some(prefix) && wish.origin == Some(route.origin)
    })?;
    let there: BTreeSet<u64> = there.iter().map(|(_, route)| route.face_id).collect();
    let mut found = false;
    for face_id in through {
        let wish = ControlParameters {
            face_id: Some(face_id),
            ..wish.clone()
        };
        control.command("rib", "unregister", &wish)?;
        if there.contains(&face_id) {
            found = true;
            told(arguments.change.manage.json, "route-removed", &wish);
        }
    }
    if !found {
        return Err(Failure::new(
            Exit::NoRoute,
            "no route matches; a route that a program registered has another origin (`whimbrel route list`)",
        ));
    }
    Ok(Exit::Done)
}

fn told(json: bool, what: &str, route: &ControlParameters) {
    let prefix = route.name.clone().unwrap_or_default();
    let origin = route.origin.map(RouteOrigin);
    if json {
        return json_line(&json!({
            "event": what,
            "prefix": prefix.to_string(),
            "nexthop": route.face_id,
            "origin": origin.map(|origin| origin.to_string()),
            "cost": route.cost,
            "flags": route.flags.map(flag_names),
            "expires_in_ms": route.expiration_period.map(in_millis),
        }));
    }
    let mut text = format!(
        "{what} prefix={prefix} nexthop={}",
        route.face_id.unwrap_or_default()
    );
    if let Some(origin) = origin {
        let _ = write!(text, " origin={origin}");
    }
    if let Some(cost) = route.cost {
        let _ = write!(text, " cost={cost}");
    }
    if let Some(flags) = route.flags {
        let _ = write!(text, " flags={}", flags_text(flags));
        let _ = write!(text, " expires={}", expires(route.expiration_period));
    }
    out(&format!("{text}\n"));
}

fn print(json: bool, routes: &[(Name, RouteStatus)]) {
    if json {
        return json_line(
            &routes
                .iter()
                .map(|(prefix, route)| route_json(prefix, route))
                .collect::<Vec<_>>(),
        );
    }
    let line = |(prefix, route): &(Name, RouteStatus)| {
        format!(
            "prefix={prefix} nexthop={} origin={} cost={} flags={} expires={}\n",
            route.face_id,
            RouteOrigin(route.origin),
            route.cost,
            flags_text(route.flags),
            expires(route.expiration_period)
        )
    };
    out(&routes.iter().map(line).collect::<String>());
}

fn route_json(prefix: &Name, route: &RouteStatus) -> Value {
    json!({
        "prefix": prefix.to_string(),
        "nexthop": route.face_id,
        "origin": RouteOrigin(route.origin).to_string(),
        "cost": route.cost,
        "flags": flag_names(route.flags),
        "expires_in_ms": route.expiration_period.map(in_millis),
    })
}

fn flag_names(flags: u64) -> Vec<&'static str> {
    let names = [
        (ROUTE_CHILD_INHERIT, "child-inherit"),
        (ROUTE_CAPTURE, "capture"),
    ];
    names
        .iter()
        .filter(|(bit, _)| flags & bit != 0)
        .map(|(_, name)| *name)
        .collect()
}

fn flags_text(flags: u64) -> String {
    let names = flag_names(flags);
    if names.is_empty() {
        String::from("none")
    } else {
        names.join("|")
    }
}

fn expires(left: Option<std::time::Duration>) -> String {
    left.map_or(String::from("never"), |left| format!("{}s", left.as_secs()))
}
