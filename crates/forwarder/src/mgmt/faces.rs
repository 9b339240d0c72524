//! `faces/...`: create, update, destroy, and the datasets.

use whimbrel_ndn_mgmt::{
    ControlParameters, ControlResponse, FLAG_CONGESTION_MARKING, FLAG_LOCAL_FIELDS,
    FLAG_LP_RELIABILITY, FaceEventKind, FaceEventNotification, FaceQueryFilter, FaceStatus,
    FaceTraffic, FaceUri, Persistency, Scope,
};
use whimbrel_ndn_packet::{DecodeError, MAX_PACKET};

use super::LinkCounters;
use super::face_requests::{FaceFailure, FaceRequest, FaceSettings};
use super::verb::{Context, Outcome};
use crate::face::{Face, FaceFlags, FaceId};
use crate::forwarder::{FaceEvent, Forwarder};

/// Smallest MTU of a face that a command may set, in bytes: links send no smaller frames. NFD takes
/// 64, of which the fields of a recovered fragment leave hardly any room for a packet.
pub const MIN_MTU: u64 = 128;

pub(crate) fn create(context: &mut Context<'_>, parameters: ControlParameters) -> Outcome {
    match creation(&parameters) {
        Err(refusal) => refusal.into(),
        Ok((remote, local)) => {
            if let Some(face) = existing(context.forwarder, &remote, local.as_ref()) {
                return exists(face, &parameters).into();
            }
            let mut settings = FaceSettings::of(&parameters);
            settings.persistency.get_or_insert(Persistency::Persistent);
            let command = context.command.clone();
            let wish = context
                .creations
                .add(context.now, remote, local, settings, command);
            if let Some(wish) = wish {
                wish.into_iter().for_each(|wish| context.host.request(wish));
                Outcome::Later
            } else {
                ControlResponse::new(
                    503,
                    "too many faces are being created: try again in a while",
                )
                .into()
            }
        }
    }
}

/// The two ends of a face that can be created with these parameters.
fn creation(parameters: &ControlParameters) -> Result<(FaceUri, Option<FaceUri>), ControlResponse> {
    let parse = |text: &str| match text.parse::<FaceUri>() {
        Ok(uri) if uri.is_canonical() => Ok(uri),
        Ok(uri) => Err(ControlResponse::new(
            400,
            format!("{uri} is not canonical: give the address of the host instead of its name"),
        )),
        Err(error) => Err(ControlResponse::new(400, error.to_string())),
    };
    let remote = parse(parameters.uri.as_deref().unwrap_or_default())?;
    let local = parameters.local_uri.as_deref().map(parse).transpose()?;
    let unacceptable = |text: String| Err(ControlResponse::new(406, text));
    let scheme = remote.scheme();
    match &remote {
        FaceUri::Udp(_) | FaceUri::Tcp(_) | FaceUri::WebSocket { .. } if local.is_some() => {
            return unacceptable(format!(
                "a face of scheme {scheme} cannot be created with a LocalUri"
            ));
        }
        FaceUri::Ether(_) if !matches!(local, Some(FaceUri::Dev(_))) => {
            return unacceptable(
                "an ether face needs the interface as LocalUri, such as dev://eth0".to_owned(),
            );
        }
        FaceUri::EtherOn { .. } => {
            return unacceptable(
                "write the interface of an ether face as LocalUri, such as dev://eth0, and the address without it"
                    .to_owned(),
            );
        }
        FaceUri::Udp(_) | FaceUri::Tcp(_) | FaceUri::WebSocket { .. } | FaceUri::Ether(_) => {}
        _ => {
            return unacceptable(format!(
                "faces of scheme {scheme} cannot be created by a command"
            ));
        }
    }
    if let Some(why) = remote.unreachable() {
        return unacceptable(format!("no face can lead to {remote}: {why}"));
    }
    if remote.is_multicast() {
        return unacceptable(
            "multicast faces come from the configuration, not from a command".to_owned(),
        );
    }
    if parameters.persistency == Some(Persistency::OnDemand) {
        return unacceptable("a face that is created by a command cannot be on-demand".to_owned());
    }
    if parameters.flag(FLAG_LOCAL_FIELDS) == Some(true) && remote.scope() == Scope::NonLocal {
        return unacceptable(
            "local fields can only be enabled on faces with local scope".to_owned(),
        );
    }
    let is_stream = matches!(remote, FaceUri::Tcp(_) | FaceUri::WebSocket { .. });
    match parameters.mtu {
        Some(_) if is_stream => unacceptable(format!("a face of scheme {scheme} has no MTU")),
        Some(mtu) if mtu < MIN_MTU => {
            unacceptable(format!("the MTU must be at least {MIN_MTU} bytes"))
        }
        _ => Ok((remote, local)),
    }
}

fn existing<'a>(
    forwarder: &'a Forwarder,
    remote: &FaceUri,
    local: Option<&FaceUri>,
) -> Option<&'a Face> {
    let (remote, local) = (remote.to_string(), local.map(FaceUri::to_string));
    forwarder.faces().find(|face| {
        face.spec.remote_uri == remote
            && local
                .as_ref()
                .is_none_or(|local| *local == face.spec.local_uri)
    })
}

fn exists(face: &Face, asked: &ControlParameters) -> ControlResponse {
    let text = format!(
        "face {} to {} exists already: change it with faces/update",
        face.id(),
        face.spec.remote_uri
    );
    ControlResponse::new(409, text).with(&properties(face, asked, true))
}

/// Returns the answer to each command that requested a face, once the outcome is known.
pub(crate) fn creation_answer(
    forwarder: &Forwarder,
    outcome: &Result<FaceId, FaceFailure>,
    asked: &ControlParameters,
    is_first: bool,
) -> ControlResponse {
    let gone = || {
        ControlResponse::new(
            504,
            "the face was opened but failed at once: see the router's log",
        )
    };
    match outcome {
        Ok(id) => forwarder
            .face(*id)
            .map_or_else(gone, |face| match is_first {
                true => ControlResponse::success(&properties(face, asked, true)),
                // Later requesters get the answer for an existing face.
                false => exists(face, asked),
            }),
        Err(FaceFailure::Exists(id)) => forwarder
            .face(*id)
            .map_or_else(gone, |face| exists(face, asked)),
        Err(failure) => {
            let code = match failure {
                FaceFailure::Unsupported(_) => 406,
                FaceFailure::TooMany(_) => 503,
                FaceFailure::Exists(_) | FaceFailure::Failed(_) => 504,
            };
            ControlResponse::new(code, failure.to_string())
        }
    }
}

pub(crate) fn update(context: &mut Context<'_>, parameters: ControlParameters) -> Outcome {
    let id = context.face_meant(&parameters);
    let Some(face) = context.forwarder.face(id) else {
        return ControlResponse::new(404, format!("face {id} does not exist: see faces/list"))
            .into();
    };
    if id < FaceId::FIRST {
        return ControlResponse::new(403, format!("face {id} is part of the router itself")).into();
    }
    let refused = unchangeable(face, &parameters);
    if refused != ControlParameters::default() {
        let names: Vec<&str> = refused.present().filter(|name| *name != "Mask").collect();
        let text = format!("face {id} cannot have these settings: {}", names.join(", "));
        return ControlResponse::new(409, text).with(&refused).into();
    }
    let settings = FaceSettings::of(&parameters);
    let Some(face) = context.forwarder.face_mut(id) else {
        return ControlResponse::new(404, format!("face {id} does not exist")).into();
    };
    change(face, &settings);
    let response = ControlResponse::success(&properties(face, &parameters, false));
    if settings != FaceSettings::default() {
        context
            .host
            .request(FaceRequest::Update { face: id, settings });
    }
    response.into()
}

/// Those of the wanted settings that this face cannot have: the refusal's body names them.
fn unchangeable(face: &Face, wanted: &ControlParameters) -> ControlParameters {
    let mut refused = ControlParameters::default();
    if wanted.flag(FLAG_LOCAL_FIELDS) == Some(true) && !face.is_local() {
        refused = refused.with_flag(FLAG_LOCAL_FIELDS, true);
    }
    if let Some(persistency) = wanted.persistency
        && persistency != face.spec.persistency
        && !may_become(&face.spec.remote_uri, persistency)
    {
        refused.persistency = Some(persistency);
    }
    if let Some(mtu) = wanted.mtu
        && (face.spec.mtu.is_none() || mtu < MIN_MTU)
    {
        refused.mtu = Some(mtu);
    }
    refused
}

/// The router cannot reconnect to a Unix or WebSocket client: such a face stays on-demand. A
/// multicast face has no peer that could fail.
fn may_become(remote_uri: &str, persistency: Persistency) -> bool {
    match remote_uri.parse::<FaceUri>() {
        Ok(FaceUri::Fd(_) | FaceUri::Unix(_) | FaceUri::WebSocketClient(_)) | Err(_) => false,
        Ok(uri) if uri.is_multicast() => persistency == Persistency::Permanent,
        Ok(_) => true,
    }
}

fn change(face: &mut Face, settings: &FaceSettings) {
    let spec = &mut face.spec;
    let set = |place: &mut bool, wanted: Option<bool>| *place = wanted.unwrap_or(*place);
    set(&mut spec.flags.local_fields, settings.local_fields);
    set(&mut spec.flags.reliability, settings.reliability);
    set(
        &mut spec.flags.congestion_marking,
        settings.congestion_marking,
    );
    spec.persistency = settings.persistency.unwrap_or(spec.persistency);
    spec.base_congestion_interval = settings
        .base_congestion_interval
        .unwrap_or(spec.base_congestion_interval);
    spec.default_congestion_threshold = settings
        .default_congestion_threshold
        .unwrap_or(spec.default_congestion_threshold);
    if let Some(mtu) = settings.mtu {
        spec.mtu = Some(usize::try_from(mtu).unwrap_or(MAX_PACKET).min(MAX_PACKET));
    }
}

pub(crate) fn destroy(context: &mut Context<'_>, parameters: ControlParameters) -> Outcome {
    let id = FaceId(parameters.face_id.unwrap_or_default());
    if id == FaceId::INVALID {
        return ControlResponse::new(400, "FaceId 0 is not a face: see faces/list").into();
    }
    if id < FaceId::FIRST {
        return ControlResponse::new(403, format!("face {id} is part of the router itself")).into();
    }
    if context.forwarder.face(id).is_some() {
        context.forwarder.remove_face(context.now, id);
        context.host.request(FaceRequest::Destroy(id));
    }
    // Destroying a face that does not exist succeeds, as the protocol requires.
    ControlResponse::success(&ControlParameters {
        face_id: Some(id.0),
        ..ControlParameters::default()
    })
    .into()
}

fn flag_bits(flags: FaceFlags) -> u64 {
    let bit = |on: bool, bit: u64| if on { bit } else { 0 };
    bit(flags.local_fields, FLAG_LOCAL_FIELDS)
        | bit(flags.reliability, FLAG_LP_RELIABILITY)
        | bit(flags.congestion_marking, FLAG_CONGESTION_MARKING)
}

/// A stream has no MTU; NFD reports the size of the largest packet.
fn told_mtu(face: &Face) -> u64 {
    face.spec.mtu.map_or(MAX_PACKET, |mtu| mtu.min(MAX_PACKET)) as u64
}

/// Returns the body of an answer about a face. MTU and congestion marking are included only if the
/// command named one of them: python-ndn cannot parse them in ndn-cxx's order, and NDNts would lose
/// Flags in python-ndn's.
fn properties(face: &Face, asked: &ControlParameters, with_uris: bool) -> ControlParameters {
    let uri = |uri: &String| with_uris.then(|| uri.clone());
    let told = ControlParameters {
        face_id: Some(face.id().0),
        uri: uri(&face.spec.remote_uri),
        local_uri: uri(&face.spec.local_uri),
        flags: Some(flag_bits(face.spec.flags)),
        persistency: Some(face.spec.persistency),
        ..ControlParameters::default()
    };
    let wants_link = asked.mtu.is_some()
        || asked.base_congestion_marking_interval.is_some()
        || asked.default_congestion_threshold.is_some();
    if !wants_link {
        return told;
    }
    ControlParameters {
        base_congestion_marking_interval: Some(face.spec.base_congestion_interval),
        default_congestion_threshold: Some(face.spec.default_congestion_threshold),
        mtu: Some(told_mtu(face)),
        ..told
    }
}

pub(crate) fn status(face: &Face, link: &LinkCounters) -> FaceStatus {
    FaceStatus {
        face_id: face.id().0,
        uri: face.spec.remote_uri.clone(),
        local_uri: face.spec.local_uri.clone(),
        expiration_period: face.spec.expires,
        scope: face.spec.scope,
        persistency: face.spec.persistency,
        link_type: face.spec.link_type,
        base_congestion_marking_interval: Some(face.spec.base_congestion_interval),
        default_congestion_threshold: Some(face.spec.default_congestion_threshold),
        mtu: Some(told_mtu(face)),
        counters: FaceTraffic {
            in_interests: face.counters.in_interests,
            in_data: face.counters.in_data,
            in_nacks: face.counters.in_nacks,
            out_interests: face.counters.out_interests,
            out_data: face.counters.out_data,
            out_nacks: face.counters.out_nacks,
            in_bytes: link.in_bytes,
            out_bytes: link.out_bytes,
        },
        flags: flag_bits(face.spec.flags),
    }
}

/// `faces/list`, or with a filter `faces/query`.
pub(crate) fn list(
    forwarder: &Forwarder,
    link: &dyn Fn(FaceId) -> LinkCounters,
    filter: &FaceQueryFilter,
) -> Vec<u8> {
    let mut out = Vec::new();
    for face in forwarder.faces() {
        let status = status(face, &link(face.id()));
        if filter.matches(&status) {
            status.encode(&mut out);
        }
    }
    out
}

/// Returns the filter of `faces/query`.
pub(crate) fn filter(component: Option<&[u8]>) -> Result<FaceQueryFilter, ControlResponse> {
    let malformed = |why: String| {
        ControlResponse::new(400, format!("faces/query needs a FaceQueryFilter: {why}"))
    };
    let bytes = component.ok_or_else(|| malformed("the name has none".to_owned()))?;
    let mut filter = FaceQueryFilter::decode(bytes)
        .map_err(|error: DecodeError| malformed(error.to_string()))?;
    for uri in [&mut filter.uri, &mut filter.local_uri] {
        *uri = uri.take().map(canonical);
    }
    Ok(filter)
}

/// Returns a FaceUri in the form in which faces have theirs: NDNd's tool asks for the faces that its
/// user has typed.
fn canonical(uri: String) -> String {
    match uri.parse::<FaceUri>() {
        Ok(known) => known.to_string(),
        Err(_) => uri,
    }
}

/// Returns the notification of a face event. A removed face is described by its final state, which
/// is in the events `since`.
pub(crate) fn notification(
    forwarder: &Forwarder,
    event: &FaceEvent,
    since: &[FaceEvent],
) -> Option<FaceEventNotification> {
    let (kind, id) = match event {
        FaceEvent::Created(id) => (FaceEventKind::Created, *id),
        FaceEvent::Up(id) => (FaceEventKind::Up, *id),
        FaceEvent::Down(id) => (FaceEventKind::Down, *id),
        FaceEvent::Destroyed(face) => (FaceEventKind::Destroyed, face.id()),
    };
    let ended = || {
        since.iter().find_map(|later| match later {
            FaceEvent::Destroyed(face) if face.id() == id => Some(&**face),
            _ => None,
        })
    };
    let face = forwarder.face(id).or_else(ended)?;
    Some(FaceEventNotification {
        kind,
        face_id: face.id().0,
        uri: face.spec.remote_uri.clone(),
        local_uri: face.spec.local_uri.clone(),
        scope: face.spec.scope,
        persistency: face.spec.persistency,
        link_type: face.spec.link_type,
        flags: flag_bits(face.spec.flags),
    })
}
