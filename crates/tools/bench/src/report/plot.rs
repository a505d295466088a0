//! Plots as SVG that goes into a page: without a background, so that the page's colours show, and as wide as the page
//! lets them.
//!
//! Colours are those of Okabe and Ito, which people with colour blindness can tell apart; symbols differ as well. The
//! page replaces black and the dark ones where it is dark (see `html`).

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use redoubt_workload::error::{Error, Result};

use super::table::short;

/// A line of a plot.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// Its label in the legend.
    pub label: String,
    /// Which colour and symbol it has, so that a thing has the same in all plots.
    pub style: usize,
    /// Its points, with the range of the values behind each.
    pub points: Vec<Point>,
}

/// A point of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Point {
    /// Where on the horizontal axis.
    pub x: f64,
    /// Median.
    pub y: f64,
    /// Smallest value.
    pub low: f64,
    /// Largest value.
    pub high: f64,
}

/// Contents of a plot.
#[derive(Debug, Clone, Default)]
pub struct Plot {
    /// Its title.
    pub title: String,
    /// Vertical axis.
    pub y_axis: String,
    /// Horizontal axis.
    pub x_axis: String,
    /// Names of the places 0, 1, 2 and on of the horizontal axis; empty for an axis of numbers.
    pub x_names: Vec<String>,
    /// Vertical axis in powers of ten.
    pub logarithmic: bool,
    /// Lines.
    pub lines: Vec<Line>,
    /// Events: position on the horizontal axis and label.
    pub marks: Vec<(f64, String)>,
    /// Twice as wide as others.
    pub is_wide: bool,
}

impl Plot {
    fn width(&self) -> u32 {
        if self.is_wide { 2 * WIDTH } else { WIDTH }
    }
}

/// Small enough that text is readable where the plot is as wide as a phone.
const WIDTH: u32 = 440;
const HEIGHT: u32 = 300;
const LEGEND_ROW: u32 = 22;
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<T> = std::result::Result<T, String>;

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Draws it; the result is an `svg` element.
///
/// # Errors
/// [`Error::State`].
pub fn draw(plot: &Plot) -> Result<String> {
    let mut text = String::new();
    let height = HEIGHT + LEGEND_ROW * plot.lines.len().div_ceil(2) as u32;
    {
        let area = SVGBackend::with_string(&mut text, (plot.width(), height)).into_drawing_area();
        draw_chart(&area, plot)
            .and_then(|()| draw_legend(&area, plot))
            .and_then(|()| area.present().map_err(words))
            .map_err(|error| Error::State(format!("drawing a plot: {error}")))?;
    }
    // The size is the page's business, the proportions are ours.
    let fixed = format!("<svg width=\"{}\" height=\"{height}\"", plot.width());
    let label = format!("<svg role=\"img\" aria-label=\"{}\"", super::html::escape(&plot.title));
    Ok(text.replacen(&fixed, &label, 1))
}

fn draw_chart(area: &Area<'_>, plot: &Plot) -> Drawn<()> {
    let all = || plot.lines.iter().flat_map(|line| &line.points);
    let highest = all().map(|point| point.high.max(point.y)).fold(0.0, f64::max).max(1e-3);
    let lowest = all().map(|point| point.low.min(point.y)).filter(|low| *low > 0.0).fold(highest, f64::min);
    let x_range = if plot.x_names.is_empty() {
        0.0..all().map(|point| point.x).fold(0.0, f64::max).max(1e-3)
    } else {
        -0.3..plot.x_names.len() as f64 - 0.7
    };
    if plot.logarithmic {
        draw_lines(area, plot, x_range, (lowest / 2.0..highest * 2.0).log_scale())
    } else {
        draw_lines(area, plot, x_range, 0.0..highest * 1.1)
    }
}

fn draw_lines<Y>(area: &Area<'_>, plot: &Plot, x_range: std::ops::Range<f64>, y_range: Y) -> Drawn<()>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let legend = LEGEND_ROW * plot.lines.len().div_ceil(2) as u32;
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_top(34)
        .margin_bottom(8 + legend)
        .x_label_area_size(38)
        .y_label_area_size(58)
        .build_cartesian_2d(x_range, y_range)
        .map_err(words)?;
    let at = (8, 6);
    let style = TextStyle::from(("sans-serif", 16).into_font()).pos(Pos::new(HPos::Left, VPos::Top));
    area.draw(&Text::new(plot.title.clone(), at, style)).map_err(words)?;
    let name = |x: &f64| {
        let near = x.round();
        let is_place = (x - near).abs() < 0.05 && near >= 0.0;
        plot.x_names.get(near.max(0.0) as usize).filter(|_| is_place).cloned().unwrap_or_default()
    };
    let number = |x: &f64| short_tick(*x);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(if plot.x_names.is_empty() { 8 } else { plot.x_names.len().max(2) })
        .y_labels(6)
        .x_label_formatter(if plot.x_names.is_empty() { &number } else { &name })
        .y_label_formatter(&number)
        .x_desc(plot.x_axis.clone())
        .y_desc(plot.y_axis.clone())
        .label_style(("sans-serif", 14))
        .axis_desc_style(("sans-serif", 14))
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.2))
        .draw()
        .map_err(words)?;
    let highest = plot.lines.iter().flat_map(|line| &line.points).map(|point| point.y).fold(0.0, f64::max);
    for (row, (x, text)) in plot.marks.iter().enumerate() {
        let line = PathElement::new([(*x, 0.0), (*x, highest * 1.1)], BLACK.mix(0.4));
        chart.draw_series(std::iter::once(line)).map_err(words)?;
        // Neighbours at different heights, so that their words stay apart.
        let y = highest * (1.09 - 0.06 * (row % 3) as f64);
        let words_style = TextStyle::from(("sans-serif", 11).into_font());
        chart
            .draw_series(std::iter::once(Text::new(format!(" {text}"), (*x, y), words_style)))
            .map_err(words)?;
    }
    for line in &plot.lines {
        let style = colour(line.style).stroke_width(2);
        let points = line.points.iter().map(|point| (point.x, point.y));
        chart.draw_series(LineSeries::new(points.clone(), style)).map_err(words)?;
        if plot.x_names.is_empty() {
            continue;
        }
        let ranges = line.points.iter().filter(|point| point.high > point.low);
        let bars = ranges.map(|point| PathElement::new([(point.x, point.low), (point.x, point.high)], style));
        chart.draw_series(bars).map_err(words)?;
        for point in points {
            chart
                .draw_series(std::iter::once(EmptyElement::at(point) + symbol(line.style)))
                .map_err(words)?;
        }
    }
    Ok(())
}

fn colour(style: usize) -> RGBColor {
    COLOURS.get(style % COLOURS.len()).copied().unwrap_or(BLACK)
}

/// A filled symbol around its place.
fn symbol(style: usize) -> Polygon<(i32, i32)> {
    let corners: &[(i32, i32)] = match style % 3 {
        0 => &[(-4, -4), (4, -4), (4, 4), (-4, 4)],
        1 => &[(0, -6), (5, 4), (-5, 4)],
        _ => &[(0, -6), (6, 0), (0, 6), (-6, 0)],
    };
    Polygon::new(corners.to_vec(), colour(style).filled())
}

fn draw_legend(area: &Area<'_>, plot: &Plot) -> Drawn<()> {
    for (index, line) in plot.lines.iter().enumerate() {
        let x = 16 + (index % 2) as i32 * (plot.width() as i32 / 2);
        let y = (HEIGHT + LEGEND_ROW * (index / 2) as u32) as i32 + 6;
        area.draw(&PathElement::new([(x, y), (x + 28, y)], colour(line.style).stroke_width(2)))
            .map_err(words)?;
        if !plot.x_names.is_empty() {
            area.draw(&(EmptyElement::at((x + 14, y)) + symbol(line.style))).map_err(words)?;
        }
        let style = TextStyle::from(("sans-serif", 15).into_font()).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(line.label.clone(), (x + 36, y), style)).map_err(words)?;
    }
    Ok(())
}

/// A number on an axis: no zeros after the point.
fn short_tick(value: f64) -> String {
    if value == 0.0 || value.abs() >= 0.01 {
        ((value * 100.0).round() / 100.0).to_string()
    } else {
        short(value)
    }
}
