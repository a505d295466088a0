//! Plots hold every label and a rectangle for every part; hostile labels stay text.

use super::*;

fn count(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

#[test]
fn bars_have_their_parts_their_labels_and_a_legend() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bars.svg");
    let bar = |label: &str, data: f64| Bar {
        label: label.into(),
        parts: vec![
            (Part::Host(Origin::Data), data),
            (Part::Collection, 2.0),
            (Part::Host(Origin::Redo), 0.0),
        ],
    };
    bars(&path, "Title & more", "KiB", &[bar("one <b>", 10.0), bar("two", 300.0)]).unwrap();
    let svg = std::fs::read_to_string(path).unwrap();
    for label in
        ["Title &amp; more", "one &lt;b&gt;", "two", "KiB", "12.0", "302", "data", "garbage collection"]
    {
        assert!(svg.contains(label), "{label}");
    }
    assert!(!svg.contains("<b>") && !svg.contains("doublewrite") && !svg.contains("redo"));
    // Each colour: two bars and the legend.
    assert_eq!(count(&svg, "fill=\"#0072B2\""), 3);
    assert_eq!(count(&svg, "fill=\"#9A9A9A\""), 3);
}

#[test]
fn lines_have_labels_and_dots() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lines.svg");
    let line = |index: usize| Line {
        label: format!("layout {index}"),
        points: (1..40).map(|x| (f64::from(x) / 10.0, 1.0 + index as f64 / 10.0)).collect(),
        measured_from: 2.0,
    };
    let many: Vec<_> = (0..16).map(line).collect();
    lines(&path, "Write amplification", &many).unwrap();
    let svg = std::fs::read_to_string(path).unwrap();
    (0..16).for_each(|index| assert!(svg.contains(&format!("layout {index}\n"))));
    assert_eq!(count(&svg, "<circle"), 16);
    assert!(svg.contains("drive writes"));
}

#[test]
fn nothing_to_draw_is_an_empty_plot() {
    let dir = tempfile::tempdir().unwrap();
    bars(&dir.path().join("bars.svg"), "t", "KiB", &[]).unwrap();
    lines(&dir.path().join("lines.svg"), "t", &[]).unwrap();
    let message = lines(&dir.path().join("no/lines.svg"), "t", &[]).unwrap_err().to_string();
    assert!(message.contains("lines.svg"), "{message}");
}
