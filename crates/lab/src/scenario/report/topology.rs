//! A picture of a network: the places of nodes, and the drawing.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::super::network::Network;
use super::super::node::{Node, Role};
use crate::LabError;
use crate::figure::use_bundled_font;

/// Size of the picture, in pixels.
const SIZE: (u32, u32) = (760, 480);
const MARGIN: f64 = 56.0;
/// Bound of the nodes with names: more would overlap.
const MAX_NAMES: usize = 60;
const STEPS: usize = 300;

/// A network and the places of its nodes, each coordinate within 0 and 1.
pub(super) struct Picture<'a> {
    network: &'a Network,
    places: Vec<(f64, f64)>,
}

impl<'a> Picture<'a> {
    /// Places the nodes, from a circle on, so that the picture is always the same. T. Fruchterman
    /// and E. Reingold, "Graph drawing by force-directed placement", Software: Practice and
    /// Experience 21, 1991.
    pub(super) fn of(network: &'a Network) -> Picture<'a> {
        let count = network.nodes.len();
        let ideal = (1.0 / count.max(1) as f64).sqrt();
        let mut places: Vec<(f64, f64)> = (0..count)
            .map(|node| {
                let angle = node as f64 / count as f64 * core::f64::consts::TAU;
                // Slightly off the circle, so that a line does not stay folded.
                let radius = 0.4 + 0.02 * (node % 3) as f64;
                (0.5 - radius * angle.cos(), 0.5 - radius * angle.sin())
            })
            .collect();
        for step in 0..STEPS {
            let heat = 0.1 * (1.0 - step as f64 / STEPS as f64);
            let mut pulls = vec![(0.0, 0.0); count];
            for a in 0..count {
                for b in 0..a {
                    let (x, y, distance) = between(places[a], places[b]);
                    let push = ideal * ideal / distance;
                    add(&mut pulls[a], x * push, y * push);
                    add(&mut pulls[b], -x * push, -y * push);
                }
            }
            for link in &network.links {
                let (a, b) = link.ends;
                let (x, y, distance) = between(places[a], places[b]);
                let pull = distance * distance / ideal;
                add(&mut pulls[a], -x * pull, -y * pull);
                add(&mut pulls[b], x * pull, y * pull);
            }
            for (place, pull) in places.iter_mut().zip(&pulls) {
                let length = pull.0.hypot(pull.1).max(1e-9);
                let max = length.min(heat);
                add(place, pull.0 / length * max, pull.1 / length * max);
            }
        }
        spread(&mut places);
        Picture { network, places }
    }

    /// Writes `stem`.svg and `stem`.png.
    pub(super) fn write(&self, stem: &Path) -> Result<(), LabError> {
        use_bundled_font();
        let (svg, png) = (stem.with_extension("svg"), stem.with_extension("png"));
        let failed =
            |path: &Path, reason: String| LabError::figure(&path.display().to_string(), &reason);
        self.draw(SVGBackend::new(&svg, SIZE).into_drawing_area())
            .map_err(|reason| failed(&svg, reason))?;
        self.draw(BitMapBackend::new(&png, SIZE).into_drawing_area())
            .map_err(|reason| failed(&png, reason))
    }

    /// Returns the picture as SVG text.
    pub(super) fn svg(&self) -> Result<String, LabError> {
        use_bundled_font();
        let mut text = String::new();
        self.draw(SVGBackend::with_string(&mut text, SIZE).into_drawing_area())
            .map_err(|reason| LabError::figure("topology", &reason))?;
        Ok(text)
    }

    fn draw<B: DrawingBackend>(&self, area: DrawingArea<B, Shift>) -> Result<(), String> {
        let said = |fault: DrawingAreaErrorKind<B::ErrorType>| fault.to_string();
        let at = |node: usize| {
            let (x, y) = self.places[node];
            let scale = |share: f64, pixels: u32| {
                (MARGIN + share * (f64::from(pixels) - 2.0 * MARGIN)) as i32
            };
            (scale(x, SIZE.0), scale(y, SIZE.1))
        };
        area.fill(&WHITE).map_err(said)?;
        for link in &self.network.links {
            let line = vec![at(link.ends.0), at(link.ends.1)];
            area.draw(&PathElement::new(
                line,
                RGBColor(180, 180, 180).stroke_width(2),
            ))
            .map_err(said)?;
        }
        let named = self.network.nodes.len() <= MAX_NAMES;
        for (index, node) in self.network.nodes.iter().enumerate() {
            let (x, y) = at(index);
            let radius = if named { 8 } else { 4 };
            area.draw(&Circle::new((x, y), radius, colour(node).filled()))
                .map_err(said)?;
            if named {
                let style = TextStyle::from(("sans-serif", 13).into_font())
                    .pos(Pos::new(HPos::Center, VPos::Top));
                area.draw(&Text::new(node.name.clone(), (x, y + radius + 3), style))
                    .map_err(said)?;
            }
        }
        area.present().map_err(said)
    }
}

/// Returns the direction from `b` towards `a`, of length 1, and their distance.
fn between(a: (f64, f64), b: (f64, f64)) -> (f64, f64, f64) {
    let (x, y) = (a.0 - b.0, a.1 - b.1);
    let distance = x.hypot(y).max(1e-6);
    (x / distance, y / distance, distance)
}

fn add(to: &mut (f64, f64), x: f64, y: f64) {
    to.0 += x;
    to.1 += y;
}

/// Stretches the places over the whole picture.
fn spread(places: &mut [(f64, f64)]) {
    let fit = |pick: fn(&mut (f64, f64)) -> &mut f64, places: &mut [(f64, f64)]| {
        let values: Vec<f64> = places.iter_mut().map(|place| *pick(place)).collect();
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        for place in places {
            let value = pick(place);
            *value = match max - min > 1e-3 {
                true => (*value - min) / (max - min),
                false => 0.5,
            };
        }
    };
    fit(|place| &mut place.0, places);
    fit(|place| &mut place.1, places);
}

/// Returns the colour of a node's first role, from the charts' palette.
fn colour(node: &Node) -> RGBColor {
    match node.roles.0.first() {
        Some(Role::Host) => RGBColor(0, 114, 178),
        Some(Role::Router) => RGBColor(213, 94, 0),
        Some(Role::NdnRouter) => RGBColor(0, 158, 115),
        Some(Role::NameServer) => RGBColor(204, 121, 167),
        _ => RGBColor(120, 120, 120),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Overrides, Scenario};

    #[test]
    fn nodes_are_apart_and_within_the_picture() {
        let text = "graph = { role = \"ndn-router\", grid = { columns = 4, rows = 3 } }\n\
            loads.x = { from = \"n1\", to = \"n12\", file = \"1 MB\" }\n";
        let scenario = Scenario::parse(Path::new("x.toml"), text, Overrides::default()).unwrap();
        let picture = Picture::of(&scenario.settings[0].plan.network);
        for (index, a) in picture.places.iter().enumerate() {
            assert!((0.0..=1.0).contains(&a.0) && (0.0..=1.0).contains(&a.1));
            for b in &picture.places[..index] {
                assert!(between(*a, *b).2 > 0.08, "{a:?} {b:?}");
            }
        }
        let svg = picture.svg().unwrap();
        assert!(svg.contains("n12") && svg.matches("<circle").count() == 12);
    }
}
