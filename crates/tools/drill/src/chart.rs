//! Values over time as text, for a terminal.

/// From empty to full.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ROWS: usize = 5;
/// Columns of the values, without the labels beside them.
const WIDTH: usize = 100;
const LABEL_WIDTH: usize = 8;

/// Prints a chart: `values`, one every `step` seconds, and the events beneath them.
pub fn show(values: &[f64], step: f64, events: &[(f64, &str)]) {
    for line in lines(values, step, events) {
        say!("{line}");
    }
}

fn lines(values: &[f64], step: f64, events: &[(f64, &str)]) -> Vec<String> {
    let (columns, seconds) = fit(values, step);
    let highest = columns.iter().copied().fold(0.0, f64::max);
    if highest <= 0.0 {
        return vec!["(nothing)".to_owned()];
    }
    let cell = |value: f64, row: usize| {
        let eighths = value / highest * (ROWS * 8) as f64 - (row * 8) as f64;
        BLOCKS[(eighths.round().clamp(0.0, 8.0)) as usize]
    };
    let row = |row: usize| {
        let label = match row {
            0 => "0".to_owned(),
            _ if row == ROWS - 1 => format!("{highest:.0}"),
            _ => String::new(),
        };
        let cells: String = columns.iter().map(|value| cell(*value, row)).collect();
        format!("{label:>LABEL_WIDTH$} |{}", cells.trim_end())
    };
    let mut lines: Vec<String> = (0..ROWS).rev().map(row).collect();
    let mut marks = vec![' '; columns.len()];
    let mut legend = Vec::new();
    for (letter, (at, what)) in ('a'..='z').zip(events) {
        let column = ((at / seconds) as usize).min(columns.len() - 1);
        // Of two events in one column, the first one stays: it caused the second one.
        if marks[column] == ' ' {
            marks[column] = letter;
        }
        legend.push(format!("{letter} {what} ({at:.1} s)"));
    }
    let marks: String = marks.into_iter().collect();
    lines.push(format!("{:>LABEL_WIDTH$} +{}", "", "-".repeat(columns.len())));
    lines.push(format!("{:>LABEL_WIDTH$}  {}", "", marks.trim_end()));
    lines.push(format!("{:>LABEL_WIDTH$}  {}", "", legend.join(", ")));
    lines
}

/// Merges neighbouring values until all fit. Also returns the number of seconds per column.
fn fit(values: &[f64], step: f64) -> (Vec<f64>, f64) {
    let together = values.len().div_ceil(WIDTH).max(1);
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    (values.chunks(together).map(mean).collect(), step * together as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_is_a_full_column_and_nothing_an_empty_one() {
        let lines = lines(&[80.0, 0.0, 40.0], 0.5, &[(0.6, "one killed")]);
        assert_eq!(
            lines,
            [
                "      80 |█",
                "         |█",
                "         |█ ▄",
                "         |█ █",
                "       0 |█ █",
                "         +---",
                "           a",
                "          a one killed (0.6 s)"
            ]
        );
    }

    #[test]
    fn many_values_are_put_together() {
        let (columns, seconds) = fit(&[2.0; 250], 0.5);
        assert_eq!((columns.len(), seconds), (84, 1.5));
        assert_eq!(super::lines(&[], 1.0, &[]), ["(nothing)"]);
    }
}
