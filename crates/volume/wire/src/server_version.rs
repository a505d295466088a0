//! Family and version of a server. A volume stores the newest server that ran on it, and a server of an older series is
//! refused.
//!
//! Text form `MariaDB 11.8.9`: in requests, in the file `volume`, and for people.
//!
//! A newer series changes the stored data when it is started: MariaDB 11.0 removes the change buffer, MySQL upgrades
//! its data dictionary. The change cannot be undone. Within a series a downgrade is possible.

use redoubt_types::Family;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Family and version, as a volume stores them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServerVersion {
    /// Family of the server.
    pub family: Family,
    /// 11 of 11.8.9.
    pub major: u32,
    /// 8 of 11.8.9.
    pub minor: u32,
    /// 9 of 11.8.9.
    pub patch: u32,
}

impl ServerVersion {
    /// Parses the line that a server prints about itself (`--version`, and the first line of `--help`).
    pub fn of_program(line: &str) -> Option<Self> {
        let (_, number) = line.split_once("  Ver ")?;
        // Not in the text before: that is the program's path.
        let family = if number.contains("MariaDB") { Family::MariaDb } else { Family::MySql };
        if number.contains("Percona") {
            return None;
        }
        let number = number.split([' ', '-']).next()?;
        Self::from_number(family, number)
    }

    /// The version in a text that a server of this family wrote, such as `MariaDB 11.8.9` or `11.8.9-MariaDB-log`.
    pub fn in_text(family: Family, text: &str) -> Option<Self> {
        let is_digit = |character: char| character.is_ascii_digit();
        let word = text.split_whitespace().find(|word| word.starts_with(is_digit))?;
        let number = word.split(|character| !is_digit(character) && character != '.').next()?;
        Self::from_number(family, number)
    }

    fn from_number(family: Family, number: &str) -> Option<Self> {
        let mut parts = number.split('.').map(|part| part.parse().ok());
        let version = Self { family, major: parts.next()??, minor: parts.next()??, patch: parts.next()?? };
        parts.next().is_none().then_some(version)
    }

    /// 11.8 of 11.8.9.
    pub const fn series(&self) -> (u32, u32) {
        (self.major, self.minor)
    }

    /// Whether it is a server of this family and series.
    pub fn is_of_series(&self, family: Family, series: (u32, u32)) -> bool {
        self.family == family && self.series() == series
    }

    /// The reason why a server of this version must not run where one of version `newest` has run.
    pub fn refused_after(&self, newest: Self) -> Option<String> {
        if self.family != newest.family {
            return Some(format!("{newest} has run on it, and {self} cannot read what that writes"));
        }
        (self.series() < newest.series()).then(|| {
            format!(
                "{newest} has run on it and has changed what is stored, so that {self} cannot start from it. Start \
                 {} {}.{} or later; the way back is an export taken before {newest} was started",
                newest.family, newest.major, newest.minor
            )
        })
    }

    /// The newer of both. Versions of two families cannot have run on the same volume; then this one.
    pub fn newer_of(self, other: Self) -> Self {
        let newer = self.family == other.family
            && (other.major, other.minor, other.patch) > (self.major, self.minor, self.patch);
        if newer { other } else { self }
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}.{}.{}", self.family, self.major, self.minor, self.patch)
    }
}

impl From<ServerVersion> for String {
    fn from(version: ServerVersion) -> Self {
        version.to_string()
    }
}

impl FromStr for ServerVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (family, number) = text.split_once(' ')?;
            Self::from_number(Family::named(family)?, number)
        };
        parse().ok_or_else(|| format!("{text:?} is not a server and its version, such as \"MariaDB 11.8.9\""))
    }
}

impl TryFrom<String> for ServerVersion {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> ServerVersion {
        text.parse().unwrap()
    }

    #[test]
    fn a_server_says_its_version() {
        for (line, expected) in [
            (
                "mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)",
                "MariaDB 10.11.19",
            ),
            (
                "/x/mariadbd  Ver 11.8.9-MariaDB-0+deb13u1 from Debian for debian-linux-gnu on x86_64 ()",
                "MariaDB 11.8.9",
            ),
            ("/MariaDB/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))", "MySQL 9.7.4"),
        ] {
            assert_eq!(ServerVersion::of_program(line).unwrap().to_string(), expected);
        }
        for line in [
            "",
            "mariadbd  Ver ",
            "mariadbd  Ver 10.11-MariaDB",
            "mariadbd Ver 10.11.1",
            "x  Ver 1.2.3.4",
            "mysqld  Ver 9.7.1-1 for Linux on x86_64 (Percona Server (GPL))",
        ] {
            assert_eq!(ServerVersion::of_program(line), None, "{line:?}");
        }
    }

    #[test]
    fn version_in_text_is_its_first_number() {
        for text in ["MariaDB 11.8.9", "11.8.9-MariaDB\n", "Backup 11.8.9-MariaDB-log", "11.8.9"] {
            let found = ServerVersion::in_text(Family::MariaDb, text);
            assert_eq!(found, Some(version("MariaDB 11.8.9")), "{text:?}");
        }
        for text in ["", "test", "MariaDB", "11.8", "11.8.9.1", "99999999999.1.1", "v11.8.9", "11..9"] {
            assert_eq!(ServerVersion::in_text(Family::MariaDb, text), None, "{text:?}");
        }
    }

    #[test]
    fn an_older_series_and_another_family_are_refused() {
        let newest = version("MariaDB 11.8.9");
        for fine in ["MariaDB 11.8.6", "MariaDB 11.8.10", "MariaDB 12.3.1"] {
            assert_eq!(version(fine).refused_after(newest), None);
        }
        for (older, named) in
            [("MariaDB 10.11.19", "11.8 or later"), ("MariaDB 11.4.30", "11.8"), ("MySQL 9.7.4", "MySQL")]
        {
            let why = version(older).refused_after(newest).unwrap();
            assert!(why.contains(named) && why.contains("MariaDB 11.8.9"), "{why}");
        }
    }

    #[test]
    fn the_newest_is_kept_and_text_that_says_no_version_is_refused() {
        let newest = version("MariaDB 11.8.9").newer_of(version("MariaDB 10.11.19"));
        assert_eq!(newest.newer_of(version("MariaDB 11.8.10")).to_string(), "MariaDB 11.8.10");
        assert_eq!(newest.to_string(), "MariaDB 11.8.9");
        for text in [
            "",
            "MariaDB",
            "MariaDB 11",
            "MariaDB 11.8",
            "Oracle 1.2.3",
            "MariaDB 11.8.9.1",
            "MariaDB -1.2.3",
        ] {
            assert!(text.parse::<ServerVersion>().is_err(), "{text:?}");
        }
        assert_eq!(serde_json::to_string(&newest).unwrap(), "\"MariaDB 11.8.9\"");
    }
}
