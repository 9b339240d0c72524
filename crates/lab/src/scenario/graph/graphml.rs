//! GraphML as the Internet Topology Zoo writes it: labels, places on the Earth, link speeds.

use std::collections::BTreeMap;
use std::time::Duration;

use roxmltree::{Document, Node};

use super::{Edge, Graph};

/// Light in fibre: two thirds of its speed in vacuum.
const METRES_PER_SECOND: f64 = 2.0e8;
const EARTH_RADIUS: f64 = 6.371e6;

/// Reads nodes and links. Where the file has `LinkSpeedRaw` (bit/s), it is the link's rate; where
/// it has `Latitude` and `Longitude` of both ends, the delay is that of fibre along the great
/// circle. Loops are left out. The error begins with the line.
pub(super) fn read(text: &str) -> Result<Graph, String> {
    let document = Document::parse(text)
        .map_err(|error| format!("{}: this is not XML: {error}", error.pos().row))?;
    let line = |node: &Node<'_, '_>| document.text_pos_at(node.range().start).row;
    let elements = |name: &'static str| {
        let all = document.descendants();
        all.filter(move |node| node.has_tag_name(name) || node.tag_name().name() == name)
    };
    // Attribute names by the `key` that <data> elements use.
    let keys: BTreeMap<&str, &str> = elements("key")
        .filter_map(|key| Some((key.attribute("id")?, key.attribute("attr.name")?)))
        .collect();
    let mut graph = Graph::default();
    let mut places = Vec::new();
    let mut numbers = BTreeMap::new();
    for node in elements("node") {
        let id = node
            .attribute("id")
            .ok_or_else(|| format!("{}: a node has no id", line(&node)))?;
        let data = data_of(&node, &keys);
        let name = unused_name(&graph, data.get("label").copied().unwrap_or(id), id);
        if numbers.insert(id, graph.nodes.len()).is_some() {
            return Err(format!("{}: there are two nodes '{id}'", line(&node)));
        }
        graph.nodes.push(name);
        let degrees = |key| data.get(key).and_then(|text| text.parse::<f64>().ok());
        places.push(degrees("Latitude").zip(degrees("Longitude")));
    }
    for edge in elements("edge") {
        let end = |which: &str| {
            let id = edge.attribute(which).unwrap_or_default();
            numbers
                .get(id)
                .copied()
                .ok_or_else(|| format!("{}: there is no node '{id}' for {which}", line(&edge)))
        };
        let (a, b) = (end("source")?, end("target")?);
        if a == b {
            continue;
        }
        let data = data_of(&edge, &keys);
        let speed = data
            .get("LinkSpeedRaw")
            .and_then(|text| text.parse::<f64>().ok());
        let metres = places[a].zip(places[b]).map(|(a, b)| great_circle(a, b));
        graph.edges.push(Edge {
            rate: speed.filter(|rate| *rate >= 1.0).map(|rate| rate as u64),
            delay: metres.map(|metres| {
                // Whole microseconds: a place is accurate to some kilometres.
                Duration::from_micros((metres / METRES_PER_SECOND * 1e6).round() as u64)
            }),
            ..Edge::new(a, b)
        });
    }
    Ok(graph)
}

fn data_of<'a>(node: &Node<'a, 'a>, keys: &BTreeMap<&str, &'a str>) -> BTreeMap<&'a str, &'a str> {
    let data = node
        .children()
        .filter(|child| child.tag_name().name() == "data");
    data.filter_map(|data| {
        let key = data.attribute("key")?;
        Some((*keys.get(key)?, data.text()?.trim()))
    })
    .collect()
}

/// Returns the label as a name without spaces, followed by the node's id if that name exists
/// already.
fn unused_name(graph: &Graph, label: &str, id: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() { c } else { '-' };
    let name: String = label.chars().map(plain).collect();
    let name = name.trim_matches('-').to_owned();
    if name.is_empty() || graph.nodes.contains(&name) {
        format!("{name}-{id}").trim_matches('-').to_owned()
    } else {
        name
    }
}

/// Returns the metres between two places in degrees of latitude and longitude, by the haversine
/// formula.
fn great_circle(a: (f64, f64), b: (f64, f64)) -> f64 {
    let half = |from: f64, to: f64| ((to - from).to_radians() / 2.0).sin().powi(2);
    let (lat_a, lat_b) = (a.0.to_radians(), b.0.to_radians());
    let h = half(a.0, b.0) + lat_a.cos() * lat_b.cos() * half(a.1, b.1);
    2.0 * EARTH_RADIUS * h.sqrt().min(1.0).asin()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layout of the Internet Topology Zoo, with made-up content.
    const MADE_UP: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key attr.name="Latitude" attr.type="double" for="node" id="d29" />
  <key attr.name="Longitude" attr.type="double" for="node" id="d32" />
  <key attr.name="label" attr.type="string" for="node" id="d33" />
  <key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="d37" />
  <graph edgedefault="undirected">
    <node id="0"><data key="d29">0.0</data><data key="d32">0.0</data><data key="d33">Null Island</data></node>
    <node id="1"><data key="d29">0.0</data><data key="d32">1.0</data><data key="d33">East</data></node>
    <node id="2"><data key="d33">East</data></node>
    <edge source="0" target="1"><data key="d37">1000000000.0</data></edge>
    <edge source="1" target="2"></edge>
    <edge source="2" target="2"></edge>
  </graph>
</graphml>
"#;

    #[test]
    fn labels_places_and_speeds_are_read() {
        let graph = read(MADE_UP).unwrap();
        assert_eq!(graph.nodes, ["Null-Island", "East", "East-2"]);
        assert_eq!(graph.edges.len(), 2);
        assert_eq!(graph.edges[0].rate, Some(1_000_000_000));
        // A degree of the equator is 111.2 km.
        assert_eq!(graph.edges[0].delay, Some(Duration::from_micros(556)));
        assert_eq!(graph.edges[1], Edge::new(1, 2));
    }

    #[test]
    fn faults_name_their_line() {
        let error = read(&MADE_UP.replace("source=\"1\"", "source=\"9\"")).unwrap_err();
        assert_eq!(error, "12: there is no node '9' for source");
        let error = read("<graphml>\n<node>").unwrap_err();
        assert!(error.contains("not XML"), "{error}");
    }
}
