//! Pictures: the same drawing as SVG and as PNG.
//!
//! The font comes with the program (crate `dejavu`), so that a picture looks the same on a machine without fonts.

use std::path::Path;
use std::sync::Once;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use crate::LabError;

/// One line of a chart.
#[derive(Clone, Debug)]
pub struct Series {
    /// As the legend says it.
    pub label: String,
    /// Points in order of x.
    pub points: Vec<(f64, f64)>,
}

/// Lines over a common pair of axes.
#[derive(Clone, Debug)]
pub struct LineChart {
    /// Above the picture.
    pub title: String,
    /// Below the x axis, with its unit.
    pub x_label: String,
    /// Beside the y axis, with its unit.
    pub y_label: String,
    /// At most four, so that they can be told apart.
    pub series: Vec<Series>,
    /// Spans of x that are shaded, and what they are.
    pub shaded: Vec<(f64, f64, String)>,
}

// Okabe and Ito's colours, which people who see colours differently can tell apart.
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115), RGBColor(204, 121, 167)];
const SIZE: (u32, u32) = (960, 480);

impl LineChart {
    /// Writes `stem`.svg and `stem`.png.
    pub fn write(&self, stem: &Path) -> Result<(), LabError> {
        use_bundled_font();
        let svg = stem.with_extension("svg");
        let png = stem.with_extension("png");
        let failed = |path: &Path| {
            let path = path.display().to_string();
            move |reason: String| LabError::figure(&path, &reason)
        };
        self.draw(SVGBackend::new(&svg, SIZE).into_drawing_area()).map_err(failed(&svg))?;
        self.draw(BitMapBackend::new(&png, SIZE).into_drawing_area()).map_err(failed(&png))
    }

    fn draw<B: DrawingBackend>(&self, area: DrawingArea<B, Shift>) -> Result<(), String> {
        let points = || self.series.iter().flat_map(|series| series.points.iter());
        let right = points().map(|point| point.0).fold(1.0, f64::max);
        let top = points().map(|point| point.1).fold(1.0, f64::max) * 1.08;
        let said = |fault: DrawingAreaErrorKind<B::ErrorType>| fault.to_string();
        area.fill(&WHITE).map_err(said)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 20))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..right, 0.0..top)
            .map_err(said)?;
        chart
            .configure_mesh()
            .x_desc(&self.x_label)
            .y_desc(&self.y_label)
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 15))
            .light_line_style(WHITE)
            .bold_line_style(RGBColor(225, 225, 225))
            .draw()
            .map_err(said)?;
        for (from, to, what) in &self.shaded {
            let grey = RGBColor(120, 120, 120).mix(0.18).filled();
            let span = Rectangle::new([(*from, 0.0), (to.min(right), top)], grey);
            let text = Text::new(what.clone(), (*from, top * 0.97), ("sans-serif", 14).into_font());
            chart.draw_series([span]).map_err(said)?;
            chart.draw_series([text]).map_err(said)?;
        }
        for (series, colour) in self.series.iter().zip(COLOURS) {
            let line = LineSeries::new(series.points.iter().copied(), colour.stroke_width(2));
            let drawn = chart.draw_series(line).map_err(said)?;
            drawn
                .label(&series.label)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 22, y)], colour.stroke_width(3)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(180, 180, 180))
            .label_font(("sans-serif", 14))
            .draw()
            .map_err(said)?;
        area.present().map_err(said)
    }
}

fn use_bundled_font() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for style in [FontStyle::Normal, FontStyle::Bold] {
            // A font that is bundled is well-formed; without it the drawing says so itself.
            let _ = register_font("sans-serif", style, dejavu::sans::regular());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_pictures_are_written_and_name_their_lines() {
        let folder = tempfile::tempdir().unwrap();
        let stem = folder.path().join("picture");
        let chart = LineChart {
            title: "Goodput".into(),
            x_label: "s".into(),
            y_label: "Mbit/s".into(),
            series: vec![Series { label: "Whimbrel".into(), points: vec![(0.0, 0.0), (1.0, 20.0)] }],
            shaded: vec![(0.2, 0.5, "out".into())],
        };
        chart.write(&stem).unwrap();
        assert!(std::fs::read_to_string(stem.with_extension("svg")).unwrap().contains("Whimbrel"));
        assert!(std::fs::read(stem.with_extension("png")).unwrap().starts_with(b"\x89PNG"));
    }
}
