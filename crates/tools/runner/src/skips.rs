//! Tests that were left out on this machine (`redoubt_test_support::skip`), compared with the list of allowed ones.
//!
//! The list of what is allowed has sections, `[STAGE]`, and counts for the stages that have run. A line `unless PATH:
//! NAME` counts where there is no PATH. Lines must be those that were left out, no more and no less.

use std::collections::BTreeSet;
use std::path::Path;

use crate::error::{Error, Result};
use crate::plan::{STAGES, stage_named};

/// The lines of a file, without empty ones. Words of other programs in it may be in any encoding.
///
/// # Errors
/// [`Error::Io`].
pub fn lines(path: &Path) -> Result<Vec<String>> {
    let bytes = std::fs::read(path).map_err(Error::io("read", path))?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

/// The lines of the file to which tests append, sorted, each once. Without a file there are none.
///
/// # Errors
/// [`Error::Io`].
pub fn left_out(path: &Path) -> Result<Vec<String>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let lines: BTreeSet<String> = lines(path)?.into_iter().collect();
    Ok(lines.into_iter().collect())
}

/// Names allowed in `stages`. Section `lint` has the steps that `./test` itself leaves out.
///
/// # Errors
/// [`Error::Io`], [`Error::Line`].
pub fn allowed(path: &Path, stages: &[usize]) -> Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(path).map_err(Error::io("read", path))?;
    parse(&text, stages, &|path| Path::new(path).exists()).map_err(|(line, reason)| Error::Line {
        path: path.to_owned(),
        line,
        reason,
    })
}

fn parse(
    text: &str,
    stages: &[usize],
    exists: &dyn Fn(&str) -> bool,
) -> std::result::Result<BTreeSet<String>, (usize, String)> {
    let mut names = BTreeSet::new();
    let mut counts = None;
    for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line.trim())) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            let stage = stage_named(section).ok_or_else(|| {
                (number, format!("unknown stage {section:?}; stages are {}", STAGES.join(", ")))
            })?;
            counts = Some(stages.contains(&stage));
            continue;
        }
        let counts = counts.ok_or_else(|| (number, "expected a section, as [volume]".to_owned()))?;
        let name = match line.strip_prefix("unless ") {
            Some(rest) => {
                let (path, name) =
                    rest.split_once(": ").ok_or_else(|| (number, "expected unless PATH: NAME".to_owned()))?;
                if exists(path) {
                    continue;
                }
                name
            }
            None => line,
        };
        if counts {
            names.insert(name.to_owned());
        }
    }
    Ok(names)
}

/// Lines that say how `left_out` differs from `allowed`; none if it does not.
pub fn differences(left_out: &[String], allowed: &BTreeSet<String>) -> Vec<String> {
    let name = |line: &String| {
        let rest = line.strip_prefix("SKIP ").unwrap_or(line);
        rest.split_once(':').map_or(rest, |(name, _)| name).to_owned()
    };
    let found: BTreeSet<String> = left_out.iter().map(name).collect();
    let more = found.difference(allowed).map(|name| format!("left out, but not allowed: {name}"));
    let fewer = allowed.difference(&found).map(|name| format!("allowed, but not left out: {name}"));
    more.chain(fewer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_other_stages_and_existing_paths_do_not_count() {
        let text = "# x\n[lint]\nthe format\n[volume]\na disk\nunless /here: b\nunless /gone: c\n[net]\nd\n";
        let names = |stages: &[&str]| {
            let stages: Vec<usize> = stages.iter().map(|name| stage_named(name).unwrap()).collect();
            parse(text, &stages, &|path| path == "/here").unwrap().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(names(&["volume"]), ["a disk", "c"]);
        assert_eq!(names(&["lint", "net"]), ["d", "the format"]);
        assert_eq!(parse("a disk", &[], &|_| true).unwrap_err().0, 1);
        assert!(parse("[nets]", &[], &|_| true).unwrap_err().1.contains("nets"));
        assert_eq!(parse("[net]\nunless /x", &[], &|_| true).unwrap_err().0, 2);
    }

    #[test]
    fn both_directions_are_differences() {
        let allowed = ["a disk".to_owned(), "c".to_owned()].into();
        let left_out = ["SKIP a disk: needs root".to_owned(), "SKIP e: f: g".to_owned()];
        let found = differences(&left_out, &allowed);
        assert_eq!(found, ["left out, but not allowed: e", "allowed, but not left out: c"]);
    }
}
