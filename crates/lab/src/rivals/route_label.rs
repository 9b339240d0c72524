//! Labels of the routes that Data take, which RAAQM's consumers tell apart.

use whimbrel_forwarder::strategy::IncomingData;
use whimbrel_ndn_packet::LpHeader;

/// Returns header fields with the Data's route as of this router: the label of the routers before it,
/// with the face that the Data arrived on. Consumers only compare labels.
pub(super) fn labelled(data: &IncomingData<'_>) -> Box<LpHeader> {
    // SplitMix64's finalizer: distinct routes get distinct labels but for chance.
    let mut label = data.header.route_label.unwrap_or(0).rotate_left(1) ^ data.from.0;
    label = label.wrapping_add(0x9e37_79b9_7f4a_7c15);
    label = (label ^ (label >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    label = (label ^ (label >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Box::new(LpHeader {
        route_label: Some(label ^ (label >> 31)),
        ..LpHeader::default()
    })
}
