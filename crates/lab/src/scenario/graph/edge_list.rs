//! Edge lists: one link a line.

use super::{Edge, Graph};
use whimbrel_core::units::{self, UnitError};

/// Reads lines of two names and the properties of their link: `a b`, `a b 7` (a cost), `a b
/// rate=10Mbit/s delay=5ms cost=7`. Commas count as spaces, `#` begins a comment. The error begins
/// with the line.
pub(super) fn read(text: &str) -> Result<Graph, String> {
    let mut graph = Graph::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.split_once('#').map_or(line, |(before, _)| before);
        let mut words = line.split([' ', '\t', ',']).filter(|word| !word.is_empty());
        let Some(first) = words.next() else { continue };
        let fault = |why: String| format!("{}: {why}", index + 1);
        let second = words
            .next()
            .ok_or_else(|| fault(format!("a link has two ends, and here is only '{first}'")))?;
        if first == second {
            return Err(fault(format!("'{first}' is linked with itself")));
        }
        let mut edge = Edge::new(node(&mut graph, first), node(&mut graph, second));
        for word in words {
            attribute(&mut edge, word).map_err(fault)?;
        }
        graph.edges.push(edge);
    }
    Ok(graph)
}

fn node(graph: &mut Graph, name: &str) -> usize {
    let known = graph.nodes.iter().position(|known| known == name);
    known.unwrap_or_else(|| {
        graph.nodes.push(name.to_owned());
        graph.nodes.len() - 1
    })
}

fn attribute(edge: &mut Edge, word: &str) -> Result<(), String> {
    let (key, value) = word.split_once('=').unwrap_or(("cost", word));
    let said = |error: UnitError| error.to_string();
    match key {
        "rate" => edge.rate = Some(units::parse_rate(value).map_err(said)?),
        "delay" => edge.delay = Some(units::parse_duration(value).map_err(said)?),
        "cost" => {
            let cost = value
                .parse()
                .map_err(|_| format!("'{value}' is not a whole cost"))?;
            edge.cost = Some(cost);
        }
        other => {
            return Err(format!(
                "'{other}' is not a property of a link; write rate=, delay= or cost="
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn links_costs_and_attributes_are_read() {
        let graph = read("# two\na b 7\nb, c rate=10Mbit/s delay=5ms\n\n").unwrap();
        assert_eq!(graph.nodes, ["a", "b", "c"]);
        assert_eq!(graph.edges[0].cost, Some(7));
        assert_eq!(
            graph.edges[1],
            Edge {
                ends: (1, 2),
                rate: Some(10_000_000),
                delay: Some(Duration::from_millis(5)),
                ..Edge::default()
            }
        );
    }

    #[test]
    fn faults_name_their_line() {
        for (text, said) in [
            ("a b\nc\n", "2: a link has two ends"),
            ("a a\n", "1: 'a' is linked with itself"),
            ("a b speed=3\n", "1: 'speed' is not a property"),
            ("a b rate=3\n", "1: '3' has no unit"),
            ("a b x\n", "1: 'x' is not a whole cost"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
