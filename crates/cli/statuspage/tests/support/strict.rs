//! A strict reader of the text format of Prometheus, for tests: everything that a scraper may reject is an error
//! here.

#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::{BTreeMap, BTreeSet};

/// Metrics by name.
#[derive(Debug, Default)]
pub struct Exposition {
    /// Metrics by the name in the TYPE line.
    pub metrics: BTreeMap<String, Metric>,
}

/// One metric.
#[derive(Debug, Default)]
pub struct Metric {
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// Text of the HELP line.
    pub help: String,
    /// Name with its suffix, labels, value.
    pub samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

impl Exposition {
    /// The sum of all samples of this name with these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let samples = self.metrics.values().flat_map(|metric| &metric.samples);
        let fits = |of: &BTreeMap<String, String>| {
            labels.iter().all(|(label, value)| of.get(*label).is_some_and(|found| found == value))
        };
        samples.filter(|(sample, of, _)| sample == name && fits(of)).map(|(_, _, value)| value).sum()
    }

    /// Every name that can be asked for, those of the parts of histograms included, with its labels.
    pub fn names(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut names = BTreeMap::new();
        for (name, metric) in &self.metrics {
            if metric.kind != "histogram" {
                names.entry(name.clone()).or_insert_with(BTreeSet::new);
            }
            for (sample, labels, _) in &metric.samples {
                names.entry(sample.clone()).or_insert_with(BTreeSet::new).extend(labels.keys().cloned());
            }
        }
        names
    }
}

fn is_name(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|next| next.is_ascii_alphanumeric() || next == '_')
}

/// Reads all of it.
///
/// # Errors
/// The first fault.
pub fn parse(text: &str) -> Result<Exposition, String> {
    if !text.ends_with('\n') {
        return Err("the last line has no end".to_owned());
    }
    let mut found = Exposition::default();
    let mut current: Option<String> = None;
    for line in text.lines() {
        parse_line(line, &mut found, &mut current).map_err(|why| format!("{why}: {line}"))?;
    }
    for (name, metric) in &found.metrics {
        check(name, metric).map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(found)
}

fn parse_line(line: &str, found: &mut Exposition, current: &mut Option<String>) -> Result<(), String> {
    if let Some(rest) = line.strip_prefix("# HELP ") {
        let (name, help) = rest.split_once(' ').ok_or("HELP without a text")?;
        if !is_name(name) || help.trim() != help || help.is_empty() {
            return Err("a bad name or text".to_owned());
        }
        let metric = Metric { help: help.to_owned(), ..Metric::default() };
        if found.metrics.insert(name.to_owned(), metric).is_some() {
            return Err("a second HELP".to_owned());
        }
        *current = Some(name.to_owned());
        return Ok(());
    }
    let name = current.clone().ok_or("a line before the first HELP")?;
    let metric = found.metrics.get_mut(&name).ok_or("no metric")?;
    if let Some(rest) = line.strip_prefix("# TYPE ") {
        let (of, kind) = rest.split_once(' ').ok_or("TYPE without a type")?;
        if of != name || !metric.kind.is_empty() || !metric.samples.is_empty() {
            return Err("TYPE not right after its HELP".to_owned());
        }
        if !["counter", "gauge", "histogram"].contains(&kind) {
            return Err("an unknown type".to_owned());
        }
        metric.kind = kind.to_owned();
        return Ok(());
    }
    if metric.kind.is_empty() {
        return Err("a sample before its TYPE".to_owned());
    }
    let (sample, labels, value) = parse_sample(line)?;
    let suffixes: &[&str] = if metric.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
    if !suffixes.iter().any(|suffix| sample == format!("{name}{suffix}")) {
        return Err(format!("a sample that is not of {name}"));
    }
    if metric.samples.iter().any(|(other, of, _)| *other == sample && *of == labels) {
        return Err("a sample that was there already".to_owned());
    }
    metric.samples.push((sample, labels, value));
    Ok(())
}

fn parse_sample(line: &str) -> Result<(String, BTreeMap<String, String>, f64), String> {
    let name_end = line.find(['{', ' ']).ok_or("neither labels nor a value")?;
    let (name, mut rest) = line.split_at(name_end);
    if !is_name(name) {
        return Err("a bad name".to_owned());
    }
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").ok_or("a label without a value")?;
            if !is_name(label) {
                return Err(format!("a bad label {label:?}"));
            }
            let (value, after) = quoted(after)?;
            if labels.insert(label.to_owned(), value).is_some() {
                return Err(format!("label {label} twice"));
            }
            match after.strip_prefix(',') {
                Some(more) => rest = more,
                None => {
                    rest = after.strip_prefix('}').ok_or("labels without an end")?;
                    break;
                }
            }
        }
    }
    let text = rest.strip_prefix(' ').ok_or("no blank before the value")?;
    let value: f64 = text.parse().map_err(|_| "a value that is no number")?;
    if !value.is_finite() {
        return Err("a value that is not finite".to_owned());
    }
    Ok((name.to_owned(), labels, value))
}

/// A text up to its closing quote, and the rest after it.
fn quoted(text: &str) -> Result<(String, &str), String> {
    let mut out = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Ok((out, &text[at + 1..])),
            '\\' => match characters.next() {
                Some((_, 'n')) => out.push('\n'),
                Some((_, escaped @ ('\\' | '"'))) => out.push(escaped),
                _ => return Err("an unknown escape".to_owned()),
            },
            other => out.push(other),
        }
    }
    Err("a text without an end".to_owned())
}

fn check(name: &str, metric: &Metric) -> Result<(), String> {
    let values = |suffix: &str| {
        let wanted = format!("{name}{suffix}");
        metric.samples.iter().filter(move |(sample, ..)| *sample == wanted)
    };
    match metric.kind.as_str() {
        "counter" => {
            if !name.ends_with("_total") {
                return Err("a counter whose name does not end with _total".to_owned());
            }
            if metric.samples.iter().any(|(_, _, value)| *value < 0.0) {
                return Err("a counter below 0".to_owned());
            }
        }
        "gauge" if name.ends_with("_total") => return Err("a gauge that is called a total".to_owned()),
        "histogram" => {
            for (_, labels, count) in values("_count") {
                let mut last = (f64::NEG_INFINITY, 0.0);
                for (_, of, value) in values("_bucket") {
                    let mut of = of.clone();
                    let bound = of.remove("le").ok_or("a bucket without a bound")?;
                    if of != *labels {
                        continue;
                    }
                    let bound: f64 = bound.parse().map_err(|_| "a bound that is no number")?;
                    if bound <= last.0 || *value < last.1 {
                        return Err("buckets that do not rise".to_owned());
                    }
                    last = (bound, *value);
                }
                if last != (f64::INFINITY, *count) {
                    return Err(format!("the last bucket is {last:?}, the count {count}"));
                }
                if values("_sum").filter(|(_, of, _)| of == labels).count() != 1 {
                    return Err("not one sum".to_owned());
                }
            }
        }
        _ => {}
    }
    Ok(())
}
