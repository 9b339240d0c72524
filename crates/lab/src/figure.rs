//! Pictures: the same drawing as SVG and as PNG.
//!
//! The font comes with the program (crate `dejavu`), so that a picture looks the same on a machine
//! without fonts.

mod heat;

use std::path::Path;
use std::sync::Once;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use serde::{Deserialize, Serialize};

use crate::LabError;
pub use heat::HeatMap;

/// One line of a chart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Its text in the legend.
    pub label: String,
    /// Points in order of x.
    pub points: Vec<(f64, f64)>,
    /// A paper's own points of this line, drawn in its colour.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paper: Vec<(f64, f64)>,
    /// Lower and upper end of each point's error bar; empty without error bars.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bars: Vec<(f64, f64)>,
    /// True if points are drawn as such, without a line between them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dots: bool,
}

impl Series {
    /// Removes the points without a value: JSON cannot represent them, and charts are read back
    /// from JSON.
    pub(crate) fn keep_finite(&mut self) {
        let finite = |(x, y): &(f64, f64)| x.is_finite() && y.is_finite();
        if !self.bars.is_empty() {
            let bars = self.points.iter().zip(&self.bars);
            let bars = bars.filter(|(point, _)| finite(point));
            self.bars = bars
                // The spread of a single run is unknown.
                .map(|(point, bar)| {
                    if finite(bar) {
                        *bar
                    } else {
                        (point.1, point.1)
                    }
                })
                .collect();
        }
        self.points.retain(finite);
        self.paper.retain(finite);
    }
}

/// Lines over a common pair of axes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LineChart {
    /// The text above the picture.
    pub title: String,
    /// The text below the x axis, with its unit.
    pub x_label: String,
    /// The text beside the y axis, with its unit.
    pub y_label: String,
    /// At most six, so that they can be distinguished.
    pub series: Vec<Series>,
    /// Shaded spans of x, with their labels.
    pub shaded: Vec<(f64, f64, String)>,
    /// The values at which the axes begin: zero, except where differences are a small part of the numbers.
    #[serde(default)]
    pub origin: (f64, f64),
    /// Values that the axes reach at least, so that two pictures have the same.
    #[serde(default)]
    pub reach: (f64, f64),
    /// Names of the values 0, 1, 2, ... of x: points are then drawn as bars, side by side.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// Numbers by row and column, instead of lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heat: Option<HeatMap>,
}

// Okabe and Ito's colours, which colour-blind people can distinguish.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];
/// Size of a picture in a file of its own, in pixels.
const SIZE: (u32, u32) = (960, 480);
/// Size of a picture in a page, in pixels: its text is still legible on a telephone.
const INLINE_SIZE: (u32, u32) = (520, 390);
/// The size of a legend, as shares of the picture's width and height.
const LEGEND: (f64, f64) = (0.45, 0.3);
/// The width of a letter, as a share of the width of a picture in a page.
const LETTER: f64 = 0.02;
/// Room above bars for the legend, as a share of their height.
const LEGEND_ABOVE: f64 = 0.6;
/// The legend may cover up to this many points of lines to avoid covering a letter.
const MUCH: usize = 1000;

impl LineChart {
    /// Writes `stem`.svg and `stem`.png.
    pub fn write(&self, stem: &Path) -> Result<(), LabError> {
        write_stacked(std::slice::from_ref(self), stem)
    }

    /// Returns the picture as SVG text without its title, for a page that has its own.
    pub fn svg(&self) -> Result<String, LabError> {
        use_bundled_font();
        let mut text = String::new();
        let area = SVGBackend::with_string(&mut text, INLINE_SIZE).into_drawing_area();
        self.draw(&area, None)
            .and_then(|()| area.present().map_err(|fault| fault.to_string()))
            .map_err(|reason| LabError::figure(&self.title, &reason))?;
        drop(area);
        Ok(text)
    }

    /// Returns the points that can be drawn, with the upper ends of error bars; the mean of no
    /// values cannot.
    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        let points = self.series.iter().flat_map(|series| {
            let ends = series
                .points
                .iter()
                .zip(&series.bars)
                .map(|(point, bar)| (point.0, bar.1));
            let paper = series.paper.iter().copied();
            series.points.iter().copied().chain(ends).chain(paper)
        });
        points.filter(|(x, y)| x.is_finite() && y.is_finite())
    }

    /// Returns the lower left corner: the origin, or further out where values lie beyond it.
    fn lower_corner(&self) -> (f64, f64) {
        self.points().fold(self.origin, |(left, bottom), (x, y)| {
            (left.min(x), bottom.min(y))
        })
    }

    /// Returns the upper right corner: a little room beyond the points.
    fn corner(&self) -> (f64, f64) {
        let (left, bottom) = self.lower_corner();
        let max = |values: &mut dyn Iterator<Item = f64>, min: f64| {
            values.fold(min + f64::MIN_POSITIVE.max(min.abs() * 1e-9), f64::max)
        };
        let right = max(&mut self.points().map(|point| point.0), left);
        let top = max(&mut self.points().map(|point| point.1), bottom);
        if !self.categories.is_empty() {
            let right = self.categories.len() as f64 - 0.5;
            return (right, top + (top - bottom) * LEGEND_ABOVE);
        }
        let (right, top) = (right.max(self.reach.0), top.max(self.reach.1));
        (right + (right - left) * 0.02, top + (top - bottom) * 0.08)
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        caption: Option<&str>,
    ) -> Result<(), String> {
        let said = |fault: DrawingAreaErrorKind<B::ErrorType>| fault.to_string();
        if let Some(heat) = &self.heat {
            return heat.draw(self, area, caption).map_err(said);
        }
        let (mut left, bottom) = self.lower_corner();
        let (right, top) = self.corner();
        let is_barred = !self.categories.is_empty();
        if is_barred {
            left = -0.5;
        }
        area.fill(&WHITE).map_err(said)?;
        let mut builder = ChartBuilder::on(area);
        builder
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(64);
        if let Some(caption) = caption {
            builder.caption(caption, ("sans-serif", 20));
        }
        let mut chart = builder
            .build_cartesian_2d(left..right, bottom..top)
            .map_err(said)?;
        let mut mesh = chart.configure_mesh();
        if is_barred {
            mesh.disable_x_mesh()
                .x_labels(2 * self.categories.len() + 1);
        }
        let name = |value: &f64| match is_barred {
            true => self.category(*value),
            false => number(*value),
        };
        mesh.x_desc(&self.x_label)
            .y_desc(&self.y_label)
            .x_label_formatter(&name)
            .y_label_formatter(&|value| number(*value))
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 15))
            .light_line_style(WHITE)
            .bold_line_style(RGBColor(225, 225, 225))
            .draw()
            .map_err(said)?;
        self.shade(&mut chart, right, top).map_err(said)?;
        match is_barred {
            true => self.draw_bars(&mut chart).map_err(said)?,
            false => self.draw_lines(&mut chart).map_err(said)?,
        }
        chart
            .configure_series_labels()
            .position(match is_barred {
                true => SeriesLabelPosition::UpperRight,
                false => self.emptiest_place(right, top),
            })
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(180, 180, 180))
            .label_font(("sans-serif", 14))
            .draw()
            .map_err(said)
    }

    fn shade<B: DrawingBackend>(
        &self,
        chart: &mut Canvas<'_, B>,
        right: f64,
        top: f64,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        for (from, to, what) in &self.shaded {
            let grey = RGBColor(120, 120, 120).mix(0.18).filled();
            let span = Rectangle::new([(*from, self.lower_corner().1), (to.min(right), top)], grey);
            let text = Text::new(
                what.clone(),
                (*from, top * 0.97),
                ("sans-serif", 14).into_font(),
            );
            chart.draw_series([span])?;
            chart.draw_series([text])?;
        }
        Ok(())
    }

    /// Returns the name of a value of x, if it has one.
    fn category(&self, value: f64) -> String {
        let whole = value.round();
        let is_whole = (value - whole).abs() < 1e-6 && whole >= 0.0;
        let name = self.categories.get(whole as usize).filter(|_| is_whole);
        name.cloned().unwrap_or_default()
    }

    fn draw_bars<B: DrawingBackend>(
        &self,
        chart: &mut Canvas<'_, B>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        /// The share of the room of a name that its bars take.
        const WIDTH: f64 = 0.84;
        let barred = self.series.iter().filter(|series| !series.dots).count();
        let each = WIDTH / barred.max(1) as f64;
        for (index, (series, colour)) in self
            .series
            .iter()
            .zip(COLOURS.into_iter().cycle())
            .enumerate()
        {
            if series.dots {
                let dots = series.points.iter().copied();
                let dots = dots.map(|at| Circle::new(at, 5, BLACK.stroke_width(2)));
                chart
                    .draw_series(dots)?
                    .label(&series.label)
                    .legend(|(x, y)| Circle::new((x + 11, y), 5, BLACK.stroke_width(2)));
                continue;
            }
            let from = |x: f64| x - WIDTH / 2.0 + each * index as f64;
            let spread = series.points.iter().zip(&series.bars);
            let spread = spread.filter(|(_, (low, high))| low.is_finite() && high.is_finite());
            let spread: Vec<_> = spread
                .map(|((x, _), (low, high))| {
                    let middle = from(*x) + each / 2.0;
                    PathElement::new(vec![(middle, *low), (middle, *high)], BLACK.stroke_width(1))
                })
                .collect();
            let bars = series.points.iter().map(|(x, y)| {
                let corners = [(from(*x), 0.0), (from(*x) + each, *y)];
                Rectangle::new(corners, colour.filled())
            });
            chart
                .draw_series(bars)?
                .label(&series.label)
                .legend(move |(x, y)| {
                    Rectangle::new([(x, y - 5), (x + 22, y + 5)], colour.filled())
                });
            chart.draw_series(spread)?;
            let paper = series.paper.iter();
            let paper = paper.map(|(x, y)| (from(*x) + each / 2.0, *y));
            chart.draw_series(paper.map(|at| Circle::new(at, 4, BLACK.stroke_width(2))))?;
        }
        self.name_circles(chart)
    }

    fn draw_lines<B: DrawingBackend>(
        &self,
        chart: &mut Canvas<'_, B>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        for (index, (series, colour)) in self
            .series
            .iter()
            .zip(COLOURS.into_iter().cycle())
            .enumerate()
        {
            // Earlier lines are wider, so that one that lies upon another hides it only in part.
            let width = 2 + (self.series.len() - 1 - index) as u32;
            let points = series
                .points
                .iter()
                .copied()
                .filter(|(x, y)| x.is_finite() && y.is_finite());
            if series.dots {
                let dots = points.map(|point| Circle::new(point, 5, colour.stroke_width(2)));
                chart
                    .draw_series(dots)?
                    .label(&series.label)
                    .legend(move |(x, y)| Circle::new((x + 11, y), 5, colour.stroke_width(2)));
                continue;
            }
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(width)))?
                .label(&series.label)
                .legend(move |(x, y)| {
                    PathElement::new(vec![(x, y), (x + 22, y)], colour.stroke_width(3))
                });
            let bars = series
                .points
                .iter()
                .zip(&series.bars)
                .filter(|(point, _)| point.0.is_finite());
            let bars = bars.filter(|(_, (low, high))| low.is_finite() && high.is_finite());
            chart.draw_series(bars.map(|((x, _), (low, high))| {
                let low = low.max(self.lower_corner().1);
                PathElement::new(vec![(*x, low), (*x, *high)], colour.stroke_width(1))
            }))?;
            let paper = series.paper.iter();
            let paper = paper.filter(|(x, y)| x.is_finite() && y.is_finite());
            chart.draw_series(paper.map(|point| Circle::new(*point, 5, colour.stroke_width(2))))?;
        }
        self.name_circles(chart)
    }

    /// Says in the legend what the paper's points are, if there are any.
    fn name_circles<B: DrawingBackend>(
        &self,
        chart: &mut Canvas<'_, B>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        if self.series.iter().any(|series| !series.paper.is_empty()) {
            chart
                .draw_series([] as [Circle<(f64, f64), i32>; 0])?
                .label("circles: the paper")
                .legend(|(x, y)| Circle::new((x + 11, y), 5, BLACK.stroke_width(2)));
        }
        Ok(())
    }

    /// Returns the place at which the legend covers least of the lines, and no word.
    fn emptiest_place(&self, right: f64, top: f64) -> SeriesLabelPosition {
        use SeriesLabelPosition::{
            LowerLeft, LowerRight, MiddleLeft, MiddleRight, UpperLeft, UpperRight,
        };
        // With the lower left corner of each, as shares of width and height.
        let (high, middle, beside) = (1.0 - LEGEND.1, (1.0 - LEGEND.1) / 2.0, 1.0 - LEGEND.0);
        let places = [
            (UpperRight, beside, high),
            (LowerRight, beside, 0.0),
            (MiddleRight, beside, middle),
            (UpperLeft, 0.0, high),
            (LowerLeft, 0.0, 0.0),
            (MiddleLeft, 0.0, middle),
        ];
        let covered = |left: f64, bottom: f64| {
            let within =
                |share: f64, start: f64, size: f64| (start..=start + size).contains(&share);
            let (x0, y0) = self.lower_corner();
            let hit = |(x, y): &(f64, f64)| {
                within((x - x0) / (right - x0), left, LEGEND.0)
                    && within((y - y0) / (top - y0), bottom, LEGEND.1)
            };
            let lines = self.series.iter().flat_map(dense).filter(hit).count();
            let paper = self.series.iter().flat_map(|series| &series.paper);
            let words = self.words(right, top);
            lines + paper.filter(|point| hit(point)).count() + MUCH * words.filter(hit).count()
        };
        let best = places
            .into_iter()
            .min_by_key(|(_, left, bottom)| covered(*left, *bottom));
        best.map_or(UpperRight, |(place, ..)| place)
    }

    /// Returns the places that the labels of shaded spans take.
    fn words(&self, right: f64, top: f64) -> impl Iterator<Item = (f64, f64)> {
        let (left, bottom) = self.lower_corner();
        let letter = (right - left) * LETTER;
        self.shaded.iter().flat_map(move |(from, _, what)| {
            let height = bottom + (top - bottom) * 0.95;
            (0..=what.chars().count()).map(move |at| (from + letter * at as f64, height))
        })
    }
}

/// Writes `stem`.svg and `stem`.png, with one chart above the other.
pub(crate) fn write_stacked(charts: &[LineChart], stem: &Path) -> Result<(), LabError> {
    use_bundled_font();
    let svg = stem.with_extension("svg");
    let png = stem.with_extension("png");
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |reason: String| LabError::figure(&path, &reason)
    };
    let size = (SIZE.0, SIZE.1 * charts.len() as u32);
    draw_all(charts, SVGBackend::new(&svg, size)).map_err(failed(&svg))?;
    draw_all(charts, BitMapBackend::new(&png, size)).map_err(failed(&png))
}

fn draw_all<B: DrawingBackend>(charts: &[LineChart], backend: B) -> Result<(), String> {
    let whole = backend.into_drawing_area();
    let parts = whole.split_evenly((charts.len(), 1));
    for (chart, part) in charts.iter().zip(parts) {
        chart.draw(&part, Some(&chart.title))?;
    }
    // This ends an SVG, so it is done once.
    whole.present().map_err(|fault| fault.to_string())
}

type Canvas<'a, B> = ChartContext<'a, B, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Returns points along a line, ten between each two of its own, so that a long straight part
/// counts too.
fn dense(series: &Series) -> impl Iterator<Item = (f64, f64)> {
    series.points.windows(2).flat_map(|pair| {
        let [(x0, y0), (x1, y1)] = [pair[0], pair[1]];
        (0..=10).map(move |step| {
            let share = f64::from(step) / 10.0;
            (x0 + (x1 - x0) * share, y0 + (y1 - y0) * share)
        })
    })
}

/// Returns a number for people: four significant digits, and no more than it has.
pub fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let whole = value.abs().log10().floor() as i32;
    let digits = (3 - whole).clamp(0, 9) as usize;
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Makes "sans-serif" the font that comes with the program.
pub(crate) fn use_bundled_font() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for style in [FontStyle::Normal, FontStyle::Bold] {
            // A bundled font is well-formed; without it the drawing reports an error.
            let _ = register_font("sans-serif", style, dejavu::sans::regular());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_long_as_they_need_be() {
        for (value, shown) in [
            (0.0, "0"),
            (100.0, "100"),
            (19.26458, "19.26"),
            (0.004_218, "0.004218"),
            (12_345_678.0, "12345678"),
            (1.5, "1.5"),
        ] {
            assert_eq!(number(value), shown);
        }
    }

    #[test]
    fn values_below_the_origin_are_within_the_picture() {
        let chart = LineChart {
            series: vec![Series {
                points: vec![(1.0, -0.5), (2.0, -0.25)],
                ..Series::default()
            }],
            ..LineChart::default()
        };
        let ((_, bottom), (_, top)) = (chart.lower_corner(), chart.corner());
        assert!(bottom <= -0.5 && top >= -0.25, "{bottom} to {top}");
        assert!(chart.svg().is_ok());
    }

    #[test]
    fn the_legend_leaves_the_words_of_a_shaded_span_alone() {
        let line = |points: &[(f64, f64)]| Series {
            label: "low".into(),
            points: points.to_vec(),
            ..Series::default()
        };
        // The lines leave the upper corners free, and the label takes one of them.
        let chart = |from: f64| LineChart {
            series: vec![line(&[(0.0, 1.0), (5.0, 0.3), (10.0, 0.3)])],
            shaded: vec![(from, from + 1.0, "link out".into())],
            ..LineChart::default()
        };
        let place = |from| chart(from).emptiest_place(10.0, 10.0);
        assert!(!matches!(place(8.0), SeriesLabelPosition::UpperRight));
        assert!(!matches!(place(0.5), SeriesLabelPosition::UpperLeft));
    }

    #[test]
    fn a_papers_points_are_drawn_and_named_once() {
        let chart = LineChart {
            series: vec![Series {
                label: "ours".into(),
                points: vec![(0.0, 1.0), (1.0, 2.0)],
                paper: vec![(0.0, 1.5), (1.0, 9.0)],
                ..Series::default()
            }],
            ..LineChart::default()
        };
        let svg = chart.svg().unwrap();
        assert_eq!(svg.matches("circles: the paper").count(), 1);
        // Two points, and one in the legend.
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(chart.corner().1 > 9.0);
    }

    #[test]
    fn what_is_not_known_is_left_out_and_the_rest_is_read_back() {
        let mut series = Series {
            label: "ours".into(),
            points: vec![(0.0, 1.0), (1.0, f64::NAN), (2.0, 3.0)],
            bars: vec![(f64::NAN, f64::NAN), (f64::NAN, f64::NAN), (2.5, 3.5)],
            paper: vec![(1.0, f64::NAN), (2.0, 3.1)],
            ..Series::default()
        };
        series.keep_finite();
        assert_eq!(series.points, [(0.0, 1.0), (2.0, 3.0)]);
        assert_eq!(series.bars, [(1.0, 1.0), (2.5, 3.5)]);
        assert_eq!(series.paper, [(2.0, 3.1)]);
        let text = serde_json::to_string(&series).unwrap();
        assert_eq!(serde_json::from_str::<Series>(&text).unwrap(), series);
    }

    #[test]
    fn both_pictures_are_written_and_name_their_lines() {
        let folder = tempfile::tempdir().unwrap();
        let stem = folder.path().join("picture");
        let chart = LineChart {
            title: "Goodput".into(),
            x_label: "s".into(),
            y_label: "Mbit/s".into(),
            series: vec![Series {
                label: "Whimbrel".into(),
                points: vec![(0.0, 0.0), (1.0, 20.0)],
                bars: vec![(0.0, 1.0), (f64::NAN, 22.0)],
                ..Series::default()
            }],
            shaded: vec![(0.2, 0.5, "out".into())],
            origin: (0.0, 0.0),
            ..LineChart::default()
        };
        chart.write(&stem).unwrap();
        assert!(
            std::fs::read_to_string(stem.with_extension("svg"))
                .unwrap()
                .contains("Whimbrel")
        );
        assert!(
            std::fs::read(stem.with_extension("png"))
                .unwrap()
                .starts_with(b"\x89PNG")
        );
    }
}
