//! `redoubt volume check`: everything that the node stores of a volume is read now.

use crate::args::CheckArguments;
use crate::error::{CliError, Result};
use crate::show::{Terminal, bytes, print_json};
use crate::status::quarantine_lines;
use redoubt_client::check;
use redoubt_wire::control::CheckProgress;

/// Checks a volume.
///
/// # Errors
/// [`CliError::Damaged`] if there is damage that is not repaired; as [`check::run`].
pub fn run(arguments: &CheckArguments) -> Result<()> {
    let name = &arguments.volume.name;
    let checked = check::run(&arguments.volume.address.connector()?, name, &Terminal)?;
    if arguments.json {
        print_json(&checked)?;
    } else {
        lines(name, &checked).iter().for_each(|line| say!("{line}"));
    }
    summary(name, &checked).map_or(Ok(()), |summary| Err(CliError::Damaged(summary)))
}

fn lines(name: &str, checked: &CheckProgress) -> Vec<String> {
    let CheckProgress { pages, files, new_files, log_bytes, checked_bytes, .. } = checked;
    let new = if *new_files == 0 {
        String::new()
    } else {
        format!(" ({new_files} had no checksum yet, and have one now)")
    };
    let mut lines = vec![format!(
        "checked volume {name}: {pages} pages, {files} plain files{new}, {} of the log; {} read",
        bytes(*log_bytes),
        bytes(*checked_bytes)
    )];
    if checked.repaired > 0 {
        lines.push(format!(
            "{} damaged pages were rebuilt and written again: look at the drive",
            checked.repaired
        ));
    }
    lines.extend(quarantine_lines(&checked.damage));
    let shown = checked.damage.len() as u64;
    if checked.damaged > shown {
        lines.push(format!("and {} more", checked.damaged - shown));
    }
    if let Some(damage) = &checked.log_damage {
        lines.push(format!("log: {damage}"));
    }
    if checked.unchecked > 0 {
        lines.push(format!(
            "not checked: {} places, the first of them: {}",
            checked.unchecked, checked.first_unchecked
        ));
    }
    lines
}

/// The defects of the volume, in a line; `None`: there are none.
fn summary(name: &str, checked: &CheckProgress) -> Option<String> {
    let mut parts = Vec::new();
    if checked.damaged > 0 {
        parts.push(format!("{} damaged pages or files", checked.damaged));
    }
    if checked.log_damage.is_some() {
        parts.push("a damaged log".to_owned());
    }
    if checked.unchecked > 0 {
        parts.push(format!("{} places that were not checked", checked.unchecked));
    }
    let what = parts.join(", ");
    (!parts.is_empty()).then(|| {
        format!("volume {name} has {what}; see `redoubt status --volume {name}` and the runbook, and look at the drive")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use redoubt_wire::control::QuarantinedPage;

    #[test]
    fn whole_volume_has_no_summary() {
        let checked = CheckProgress { pages: 7, repaired: 1, ..CheckProgress::default() };
        assert_eq!(summary("shop", &checked), None);
        assert!(lines("shop", &checked)[0].contains("7 pages"));
        assert!(lines("shop", &checked)[1].contains("look at the drive"));
    }

    #[test]
    fn damage_of_a_volume_is_named() {
        let damage = QuarantinedPage {
            file: "shop/orders.ibd".to_owned(),
            page_no: Some(4),
            lsn: 77,
            reason: "rotten".to_owned(),
            ..QuarantinedPage::default()
        };
        let checked = CheckProgress {
            damaged: 2,
            damage: vec![damage],
            log_damage: Some("cut".to_owned()),
            unchecked: 1,
            first_unchecked: "a file".to_owned(),
            ..CheckProgress::default()
        };
        let summary = summary("shop", &checked).unwrap();
        let lines = lines("shop", &checked).join("\n");
        for part in ["table shop.orders", "page 4", "LSN 77", "rotten", "1 more", "log: cut", "a file"] {
            assert!(lines.contains(part), "{part}: {lines}");
        }
        for part in ["2 damaged", "damaged log", "1 places"] {
            assert!(summary.contains(part), "{part}: {summary}");
        }
    }
}
