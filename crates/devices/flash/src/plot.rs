//! Plots as SVG files: bars of programmed bytes, lines of write amplification.
//!
//! Colours are those of Okabe and Ito, which people with colour blindness can tell apart; lines differ in their dashes
//! as well once the colours are used up.

use std::path::Path;

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::error::{Error, Result};
use crate::trace::Origin;

/// A part of a bar.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Part {
    /// Programmed for the host.
    Host(Origin),
    /// Copied by garbage collection.
    Collection,
}

impl Part {
    /// Every part, in the order of the stack.
    pub const ALL: [Part; 8] = [
        Part::Host(Origin::Data),
        Part::Host(Origin::DataHot),
        Part::Host(Origin::Doublewrite),
        Part::Host(Origin::Journal),
        Part::Host(Origin::Redo),
        Part::Host(Origin::Metadata),
        Part::Host(Origin::Other),
        Part::Collection,
    ];

    fn name(self) -> &'static str {
        match self {
            Part::Host(origin) => origin.name(),
            Part::Collection => "garbage collection",
        }
    }

    fn colour(self) -> RGBColor {
        match self {
            Part::Host(Origin::Data) => BLUE,
            Part::Host(Origin::DataHot) => SKY,
            Part::Host(Origin::Doublewrite) => VERMILION,
            Part::Host(Origin::Journal) => PURPLE,
            Part::Host(Origin::Redo) => ORANGE,
            Part::Host(Origin::Metadata) => GREEN,
            Part::Host(Origin::Other) => YELLOW,
            Part::Collection => GREY,
        }
    }
}

const BLUE: RGBColor = RGBColor(0x00, 0x72, 0xb2);
const SKY: RGBColor = RGBColor(0x56, 0xb4, 0xe9);
const VERMILION: RGBColor = RGBColor(0xd5, 0x5e, 0x00);
const PURPLE: RGBColor = RGBColor(0xcc, 0x79, 0xa7);
const ORANGE: RGBColor = RGBColor(0xe6, 0x9f, 0x00);
const GREEN: RGBColor = RGBColor(0x00, 0x9e, 0x73);
const YELLOW: RGBColor = RGBColor(0xf0, 0xe4, 0x42);
const GREY: RGBColor = RGBColor(0x9a, 0x9a, 0x9a);
const LINE_COLOURS: [RGBColor; 7] = [BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK];

/// A bar: what it is of, and the height of its parts.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Its subject.
    pub label: String,
    /// Its parts, in the unit of the axis.
    pub parts: Vec<(Part, f64)>,
}

/// A line: write amplification over drive writes.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its subject.
    pub label: String,
    /// Drive writes and write amplification.
    pub points: Vec<(f64, f64)>,
    /// Where the measurement begins, in drive writes.
    pub measured_from: f64,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<T> = std::result::Result<T, String>;

const WIDTH: u32 = 1200;
const TEXT_PX: u32 = 15;
const TITLE_PX: u32 = 20;
/// Height of a line of text, of a bar and of a line of a legend, in pixels.
const ROW_PX: u32 = 30;

/// Draws bars, one below the other, with a legend of the parts that occur.
pub fn bars(path: &Path, title: &str, axis: &str, bars: &[Bar]) -> Result<()> {
    let height = 150 + ROW_PX * bars.len().max(1) as u32;
    draw(path, height, |area| draw_bars(area, title, axis, bars))
}

/// Draws lines of write amplification, with a dot where the measurement begins.
pub fn lines(path: &Path, title: &str, lines: &[Line]) -> Result<()> {
    let height = 560 + 24 * lines.len() as u32;
    draw(path, height, |area| draw_lines(area, title, lines))
}

fn draw(path: &Path, height: u32, body: impl FnOnce(&Area<'_>) -> Drawn<()>) -> Result<()> {
    let mut text = String::new();
    let drawn = {
        let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE)
            .map_err(words)
            .and_then(|()| body(&area))
            .and_then(|()| area.present().map_err(words))
    };
    drawn.map_err(|what| Error::Plot { path: path.to_owned(), what })?;
    std::fs::write(path, text).map_err(|source| Error::file(path, source))
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn text(area: &Area<'_>, words: &str, place: (i32, i32), size: u32, position: Pos) -> Drawn<()> {
    let style = TextStyle::from(("sans-serif", size).into_font()).pos(position);
    area.draw(&Text::new(words.to_owned(), place, style)).map_err(self::words)
}

/// A number with as many digits as people read.
fn short(value: f64) -> String {
    match value.abs() {
        value_abs if value_abs >= 100.0 => format!("{value:.0}"),
        value_abs if value_abs >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A number on an axis: no zeros after the point.
fn tick(value: f64) -> String {
    ((value * 100.0).round() / 100.0).to_string()
}

fn draw_bars(area: &Area<'_>, title: &str, axis: &str, bars: &[Bar]) -> Drawn<()> {
    let total = |bar: &Bar| bar.parts.iter().map(|(_, value)| value).sum::<f64>();
    let longest = bars.iter().map(total).fold(0.0, f64::max).max(1e-9);
    let label_width = bars.iter().map(|bar| bar.label.chars().count()).max().unwrap_or(0) as u32 * 7 + 20;
    let label_width = label_width.clamp(80, WIDTH / 2);
    text(area, title, (20, 14), TITLE_PX, Pos::new(HPos::Left, VPos::Top))?;
    let mut chart = ChartBuilder::on(area)
        .margin_top(80)
        .margin_right(30)
        .x_label_area_size(60)
        .y_label_area_size(label_width)
        .build_cartesian_2d(0.0..longest * 1.1, 0.0..bars.len().max(1) as f64)
        .map_err(words)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(0)
        .x_desc(axis)
        .x_label_formatter(&|value| tick(*value))
        .label_style(("sans-serif", TEXT_PX))
        .axis_desc_style(("sans-serif", TEXT_PX))
        .light_line_style(TRANSPARENT)
        .draw()
        .map_err(words)?;
    for (index, bar) in bars.iter().enumerate() {
        // The first at the top.
        let bottom = (bars.len() - 1 - index) as f64;
        let mut from = 0.0;
        for part in Part::ALL {
            let value: f64 = bar.parts.iter().filter(|(one, _)| *one == part).map(|(_, value)| value).sum();
            if value > 0.0 {
                let corners = [(from, bottom + 0.15), (from + value, bottom + 0.85)];
                let rectangle = Rectangle::new(corners, part.colour().filled());
                chart.draw_series(std::iter::once(rectangle)).map_err(words)?;
                from += value;
            }
        }
        let (x, y) = chart.backend_coord(&(from, bottom + 0.5));
        text(area, &short(total(bar)), (x + 6, y), TEXT_PX, Pos::new(HPos::Left, VPos::Center))?;
        let (x, _) = chart.backend_coord(&(0.0, bottom));
        text(area, &bar.label, (x - 8, y), TEXT_PX, Pos::new(HPos::Right, VPos::Center))?;
    }
    draw_parts_legend(area, bars)
}

fn draw_parts_legend(area: &Area<'_>, bars: &[Bar]) -> Drawn<()> {
    let mut x = 20;
    for part in Part::ALL {
        if !bars.iter().any(|bar| bar.parts.iter().any(|(one, value)| *one == part && *value > 0.0)) {
            continue;
        }
        let square = Rectangle::new([(x, 50), (x + 14, 64)], part.colour().filled());
        area.draw(&square).map_err(words)?;
        text(area, part.name(), (x + 20, 57), TEXT_PX, Pos::new(HPos::Left, VPos::Center))?;
        x += 50 + 8 * part.name().len() as i32;
    }
    Ok(())
}

fn draw_lines(area: &Area<'_>, title: &str, lines: &[Line]) -> Drawn<()> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let last = points().map(|point| point.0).fold(1e-9, f64::max);
    let highest = points().map(|point| point.1).fold(1.1, f64::max);
    let lowest = points().map(|point| point.1).fold(1.0, f64::min);
    text(area, title, (20, 14), TITLE_PX, Pos::new(HPos::Left, VPos::Top))?;
    let mut chart = ChartBuilder::on(area)
        .margin_top(50)
        .margin_left(20)
        .margin_right(30)
        .margin_bottom(24 * lines.len() as u32 + 20)
        .x_label_area_size(55)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..last, lowest..highest * 1.03)
        .map_err(words)?;
    chart
        .configure_mesh()
        .x_desc("host writes since the fill, in drive writes (dot: the measurement begins)")
        .y_desc("device write amplification, mean of half a drive write")
        .x_label_formatter(&|value| tick(*value))
        .y_label_formatter(&|value| tick(*value))
        .label_style(("sans-serif", TEXT_PX))
        .axis_desc_style(("sans-serif", TEXT_PX))
        .light_line_style(TRANSPARENT)
        .draw()
        .map_err(words)?;
    let (_, bottom) = chart.backend_coord(&(0.0, lowest));
    for (index, line) in lines.iter().enumerate() {
        let style = LINE_COLOURS[index % LINE_COLOURS.len()].stroke_width(2);
        let points = line.points.iter().copied();
        // Full, then dashed, then dotted.
        let dash = [None, Some((8, 5)), Some((2, 4))][index / LINE_COLOURS.len() % 3];
        let y = bottom + 70 + 24 * index as i32;
        let key = [(40, y), (90, y)];
        match dash {
            None => {
                chart.draw_series(LineSeries::new(points, style)).map_err(words)?;
                area.draw(&PathElement::new(key, style)).map_err(words)?;
            }
            Some((length, gap)) => {
                chart.draw_series(DashedLineSeries::new(points, length, gap, style)).map_err(words)?;
                let dashed = DashedPathElement::new(key, length, gap, style);
                area.draw(&dashed).map_err(words)?;
            }
        }
        if let Some(point) = line.points.iter().find(|point| point.0 >= line.measured_from) {
            let dot = Circle::new(*point, 4, style.color.filled());
            chart.draw_series(std::iter::once(dot)).map_err(words)?;
        }
        text(area, &line.label, (100, y), TEXT_PX, Pos::new(HPos::Left, VPos::Center))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
