//! Heat maps: a number for each pair of a row and a column.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde::{Deserialize, Serialize};

use super::{LineChart, number};

/// The numbers of a heat map, and the colours of its scale's ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeatMap {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Names of the rows, from below.
    pub rows: Vec<String>,
    /// The numbers of each row; `None` where there is none.
    pub values: Vec<Vec<Option<f64>>>,
    /// Numbers from here on outwards are orange.
    pub worst: f64,
    /// Numbers from here on outwards are blue; white lies in the middle.
    pub best: f64,
}

const WORST: RGBColor = RGBColor(213, 94, 0);
const BEST: RGBColor = RGBColor(86, 180, 233);

impl HeatMap {
    fn colour(&self, value: f64) -> RGBColor {
        let at = ((value - self.worst) / (self.best - self.worst)).clamp(0.0, 1.0);
        let (from, share) = if at < 0.5 {
            (WORST, 1.0 - 2.0 * at)
        } else {
            (BEST, 2.0 * at - 1.0)
        };
        let mixed = |part: u8| (255.0 + (f64::from(part) - 255.0) * share).round() as u8;
        RGBColor(mixed(from.0), mixed(from.1), mixed(from.2))
    }

    pub(super) fn draw<B: DrawingBackend>(
        &self,
        chart: &LineChart,
        area: &DrawingArea<B, Shift>,
        caption: Option<&str>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let (width, height) = (self.columns.len() as f64, self.rows.len() as f64);
        area.fill(&WHITE)?;
        let mut builder = ChartBuilder::on(area);
        builder
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(84);
        if let Some(caption) = caption {
            builder.caption(caption, ("sans-serif", 20));
        }
        let mut canvas = builder.build_cartesian_2d(-0.5..width - 0.5, -0.5..height - 0.5)?;
        let name = |names: &[String], value: &f64| {
            let whole = value.round();
            let is_whole = (value - whole).abs() < 1e-6 && whole >= 0.0;
            let known = names.get(whole as usize).filter(|_| is_whole);
            known.cloned().unwrap_or_default()
        };
        canvas
            .configure_mesh()
            .disable_mesh()
            .x_labels(2 * self.columns.len() + 1)
            .y_labels(2 * self.rows.len() + 1)
            .x_desc(&chart.x_label)
            .y_desc(&chart.y_label)
            .x_label_formatter(&|value| name(&self.columns, value))
            .y_label_formatter(&|value| name(&self.rows, value))
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 15))
            .draw()?;
        let rows = (0..).map(f64::from).zip(&self.values);
        let cells = rows.flat_map(|(y, row)| {
            let cells = (0..).map(f64::from).zip(row);
            cells.filter_map(move |(x, value)| Some((x, y, (*value)?)))
        });
        let cells: Vec<(f64, f64, f64)> = cells.collect();
        canvas.draw_series(cells.iter().map(|(x, y, value)| {
            let corners = [(x - 0.48, y - 0.48), (x + 0.48, y + 0.48)];
            Rectangle::new(corners, self.colour(*value).filled())
        }))?;
        let middle = Pos::new(HPos::Center, VPos::Center);
        let style = ("sans-serif", 13).into_text_style(area).pos(middle);
        canvas.draw_series(
            cells
                .iter()
                .map(|(x, y, value)| Text::new(number(*value), (*x, *y), style.clone())),
        )?;
        Ok(())
    }

    /// Returns its numbers in words.
    pub(crate) fn describe(&self) -> String {
        let values = self.values.iter().flatten().filter_map(|it| *it);
        let (least, most) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), it| {
            (a.min(it), b.max(it))
        });
        format!(
            "{} rows of {} numbers from {} to {}",
            self.rows.len(),
            self.columns.len(),
            number(least),
            number(most)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heat_map_has_a_number_in_each_cell_that_has_one() {
        let heat = HeatMap {
            columns: vec!["x1".into(), "x5".into()],
            rows: vec!["1:1".into(), "1:5".into()],
            values: vec![vec![Some(0.75), None], vec![Some(0.99), Some(1.0)]],
            worst: 0.8,
            best: 1.0,
        };
        assert_eq!(heat.colour(0.5), WORST);
        assert_eq!(heat.colour(1.0), BEST);
        assert_eq!(heat.colour(0.9), WHITE);
        assert!(heat.describe().contains("from 0.75 to 1"));
        let chart = LineChart {
            heat: Some(heat),
            ..LineChart::default()
        };
        let svg = chart.svg().unwrap();
        for text in ["x5", "1:5", "0.75", "0.99"] {
            assert!(svg.contains(text), "{text}");
        }
    }
}
