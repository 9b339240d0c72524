//! A face as text and JSON.

use std::time::Duration;

use serde_json::{Value, json};
use whimbrel_ndn_mgmt::{
    FLAG_CONGESTION_MARKING, FLAG_LOCAL_FIELDS, FLAG_LP_RELIABILITY, FaceStatus,
};
use whimbrel_ndn_mgmt::{LinkType, Persistency, Scope};

use super::in_millis;

pub(super) const fn persistency_text(persistency: Persistency) -> &'static str {
    match persistency {
        Persistency::OnDemand => "on-demand",
        Persistency::Persistent => "persistent",
        Persistency::Permanent => "permanent",
    }
}

const fn scope_text(scope: Scope) -> &'static str {
    match scope {
        Scope::Local => "local",
        Scope::NonLocal => "non-local",
    }
}

const fn link_type_text(link_type: LinkType) -> &'static str {
    match link_type {
        LinkType::PointToPoint => "point-to-point",
        LinkType::MultiAccess => "multi-access",
        LinkType::AdHoc => "adhoc",
    }
}

pub(super) fn flag_names(flags: u64) -> Vec<&'static str> {
    let names = [
        (FLAG_LOCAL_FIELDS, "local-fields"),
        (FLAG_LP_RELIABILITY, "lp-reliability"),
        (FLAG_CONGESTION_MARKING, "congestion-marking"),
    ];
    names
        .iter()
        .filter(|(bit, _)| flags & bit != 0)
        .map(|(_, name)| *name)
        .collect()
}

/// One face on one line, in the words of `nfdc`.
pub(super) fn line(face: &FaceStatus) -> String {
    let mut text = format!(
        "faceid={} remote={} local={}",
        face.face_id, face.uri, face.local_uri
    );
    if let Some(left) = face.expiration_period {
        text += &format!(" expires={}s", left.as_secs());
    }
    let congestion = [
        face.base_congestion_marking_interval
            .map(|time| format!("base-marking-interval={}ms", time.as_millis())),
        face.default_congestion_threshold
            .map(|bytes| format!("default-threshold={bytes}B")),
    ];
    let congestion: Vec<String> = congestion.into_iter().flatten().collect();
    if !congestion.is_empty() {
        text += &format!(" congestion={{{}}}", congestion.join(" "));
    }
    if let Some(mtu) = face.mtu {
        text += &format!(" mtu={mtu}");
    }
    let c = &face.counters;
    text += &format!(
        " counters={{in={{{}i {}d {}n {}B}} out={{{}i {}d {}n {}B}}}}",
        c.in_interests,
        c.in_data,
        c.in_nacks,
        c.in_bytes,
        c.out_interests,
        c.out_data,
        c.out_nacks,
        c.out_bytes
    );
    let mut flags = vec![
        scope_text(face.scope),
        persistency_text(face.persistency),
        link_type_text(face.link_type),
    ];
    flags.extend(flag_names(face.flags));
    text + &format!(" flags={{{}}}", flags.join(" "))
}

/// One face on many lines.
pub(super) fn describe(face: &FaceStatus, link: Option<&Value>) -> String {
    let c = &face.counters;
    let mut lines = vec![
        ("face", face.face_id.to_string()),
        ("remote", face.uri.clone()),
        ("local", face.local_uri.clone()),
        ("scope", scope_text(face.scope).to_owned()),
        ("persistency", persistency_text(face.persistency).to_owned()),
        ("link", link_type_text(face.link_type).to_owned()),
        ("flags", flag_names(face.flags).join(" ")),
    ];
    lines.extend(
        face.expiration_period
            .map(|left| ("expires in", format!("{} s", left.as_secs()))),
    );
    lines.extend(
        face.mtu
            .map(|mtu| ("largest frame", format!("{mtu} bytes"))),
    );
    let interval = face.base_congestion_marking_interval.map(in_millis);
    lines.extend(interval.map(|time| ("marks after", format!("{time} ms"))));
    lines.extend(
        face.default_congestion_threshold
            .map(|bytes| ("marks above", format!("{bytes} bytes"))),
    );
    lines.push((
        "in",
        traffic(c.in_interests, c.in_data, c.in_nacks, c.in_bytes),
    ));
    lines.push((
        "out",
        traffic(c.out_interests, c.out_data, c.out_nacks, c.out_bytes),
    ));
    let mut text: String = lines
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| format!("{key:>13}: {value}\n"))
        .collect();
    for (key, value) in link.and_then(Value::as_object).into_iter().flatten() {
        if value.as_u64() != Some(0) {
            text += &format!("{:>13}: {value}\n", key.replace('_', " "));
        }
    }
    text
}

fn traffic(interests: u64, data: u64, nacks: u64, bytes: u64) -> String {
    format!("{interests} Interests, {data} Data, {nacks} Nacks, {bytes} bytes")
}

/// One face for scripts.
pub(super) fn face_json(face: &FaceStatus) -> Value {
    let c = &face.counters;
    json!({
        "face": face.face_id,
        "remote": face.uri,
        "local": face.local_uri,
        "scope": scope_text(face.scope),
        "persistency": persistency_text(face.persistency),
        "link_type": link_type_text(face.link_type),
        "flags": flag_names(face.flags),
        "expires_in_ms": face.expiration_period.map(in_millis),
        "mtu": face.mtu,
        "base_congestion_marking_interval_ms": face.base_congestion_marking_interval.map(|time: Duration| in_millis(time)),
        "default_congestion_threshold": face.default_congestion_threshold,
        "in": { "interests": c.in_interests, "data": c.in_data, "nacks": c.in_nacks, "bytes": c.in_bytes },
        "out": { "interests": c.out_interests, "data": c.out_data, "nacks": c.out_nacks, "bytes": c.out_bytes },
    })
}
