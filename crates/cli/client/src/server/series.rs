//! The servers that Redoubt was tested with. The only place that lists them.
//!
//! The relevant properties of a server are its redo format and how it writes log and pages. Within a series they
//! change rarely, and the tests would show it, so a release after the newest one tested is accepted with a warning.
//! Other series are unknown and refused.

use crate::error::{ClientError, Result};
use redoubt_redo::Family;
use redoubt_wire::ServerVersion;
use std::path::Path;

/// A series, and its permitted use.
struct Series {
    family: Family,
    series: (u32, u32),
    /// Newest release that was tested.
    tested_patch: u32,
    /// It runs on a volume; if not, with `--local-log` only.
    on_volume: bool,
}

const KNOWN: [Series; 4] = [
    Series { family: Family::MariaDb, series: (10, 11), tested_patch: 19, on_volume: true },
    Series { family: Family::MariaDb, series: (11, 4), tested_patch: 7, on_volume: true },
    Series { family: Family::MariaDb, series: (11, 8), tested_patch: 9, on_volume: true },
    Series { family: Family::MySql, series: (9, 7), tested_patch: 4, on_volume: true },
];

/// Intended use of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// On a volume.
    Volume,
    /// `--local-log`: with its files on its own disks.
    LocalLog,
}

impl Use {
    fn series(self) -> impl Iterator<Item = &'static Series> {
        KNOWN.iter().filter(move |known| known.on_volume || self == Self::LocalLog)
    }

    /// The series, for people: `MariaDB 10.11, MariaDB 11.4, MariaDB 11.8 or MySQL 9.7`.
    pub fn names(self) -> String {
        let name = |known: &Series| format!("{} {}.{}", known.family, known.series.0, known.series.1);
        let mut names: Vec<_> = self.series().map(name).collect();
        let last = names.pop().unwrap_or_default();
        if names.is_empty() { last } else { format!("{} or {last}", names.join(", ")) }
    }
}

/// The version in the line that a server prints of itself.
///
/// # Errors
/// [`ClientError::Usage`] for an unsupported server. `line` may be another output of it.
pub fn version_of(line: &str, binary: &Path, for_use: Use) -> Result<ServerVersion> {
    let version = ServerVersion::of_program(line);
    let known = version.filter(|version| series_of(*version, for_use).is_some());
    known.ok_or_else(|| {
        let way_out = match (for_use, version) {
            (Use::Volume, Some(_)) => {
                ". To use another one with what is in a volume: `redoubt volume export`, and that server on the exported \
                 directory"
            }
            _ => "",
        };
        ClientError::Usage(format!(
            "{} is not a supported server: {line:?}; give {}{way_out}",
            binary.display(),
            for_use.names()
        ))
    })
}

fn series_of(version: ServerVersion, for_use: Use) -> Option<&'static Series> {
    for_use.series().find(|known| (known.family, known.series) == (version.family, version.series()))
}

/// Warning about a release that is newer than the newest one tested.
pub fn untested(version: ServerVersion) -> Option<String> {
    let known = series_of(version, Use::LocalLog)?;
    (version.patch > known.tested_patch).then(|| {
        format!(
            "{version} is newer than the newest one that this version of Redoubt was tested with ({} {}.{}.{})",
            known.family, known.series.0, known.series.1, known.tested_patch
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str, for_use: Use) -> Result<ServerVersion> {
        version_of(line, Path::new("/x/server"), for_use)
    }

    #[test]
    fn tested_series_are_taken_and_others_refused_with_the_way_out() {
        let tested = of("mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for x", Use::Volume).unwrap();
        assert_eq!(untested(tested), None);
        let newer = of("mariadbd  Ver 11.8.100-MariaDB for x", Use::Volume).unwrap();
        assert!(untested(newer).unwrap().contains("11.8.100"));
        for (line, for_use, named) in [
            ("mariadbd  Ver 10.6.20-MariaDB for x", Use::Volume, "volume export"),
            ("mariadbd  Ver 12.3.1-MariaDB for x", Use::Volume, "MariaDB 11.8 or MySQL 9.7"),
            (
                "mysqld  Ver 8.4.4 for x",
                Use::LocalLog,
                "MariaDB 10.11, MariaDB 11.4, MariaDB 11.8 or MySQL 9.7",
            ),
            ("no such option", Use::Volume, "no such option"),
        ] {
            let error = of(line, for_use).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("not a supported server"), "{error}");
        }
        for for_use in [Use::Volume, Use::LocalLog] {
            assert!(of("mysqld  Ver 9.7.4 for x", for_use).is_ok());
        }
    }
}
