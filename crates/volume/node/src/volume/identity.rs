//! Identity of a volume and of its writer: a random id, and the generation that fences old writers.
//!
//! One small file, `volume`, replaced atomically before a new generation is given out, and its copy `volume.copy`
//! ([`crate::checkpoint::twice`]).

use crate::checkpoint::twice::{read_twice, renew, write_twice};
use crate::checkpoint::{check_format, parse};
use crate::error::NodeError;
use crate::home::{Folder, Home};
use redoubt_redo::Family;
use redoubt_wire::ServerVersion;
use serde::{Deserialize, Serialize};

/// Newest version of the volume's directory: raised when an older node must not open it.
///
/// | format | content |
/// |---|---|
/// | 1 | of MariaDB 10.11, which 0.1.0 opens |
/// | 2 | of a server that 0.1.0 does not know: MariaDB 11.4 or 11.8, MySQL |
/// | 3 | with damaged pages set aside ([`super::quarantine`]), or frozen ([`super::frozen`]); lower again once it is neither |
///
/// A volume has the oldest format that its content allows ([`Identity::needed_format`]).
const FORMAT: u32 = 3;
const FORMAT_OF_OTHER_SERVERS: u32 = 2;
const FORMAT_OF_0_1_0: u32 = 1;
const FILE_NAME: &str = "volume";

/// Identity of a volume, and its newest generation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// Format of the volume's directory.
    pub format: u32,
    /// Random id.
    pub volume_id: String,
    /// Newest generation given out; 0: never attached.
    pub generation: u64,
    /// Name of the client that took it, for people.
    pub attached_by: String,
    /// The server that it was attached for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached_server: Option<ServerVersion>,
    /// The newest server that has changed its pages or its redo log; an older series can no longer start from the
    /// stored state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest_server: Option<ServerVersion>,
    /// Name of the family of its servers ([`Family::name`]), from their first change or from the import on. 0.1.0 did
    /// not note it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// End of the redo of the import that made the volume, if the server had not been shut down; else 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub imported_to_lsn: u64,
    /// It was created encrypted ([`crate::at_rest`]). Its directory shows that too; this field reveals a copy in clear.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_encrypted: bool,
    /// It was imported from MySQL, so that its redo is MySQL's before any server is attached.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_imported_from_mysql: bool,
    /// Pages are set aside, and the file with their list counts. A build that does not know it would serve those pages.
    #[serde(default, skip_serializing_if = "is_false")]
    pub has_quarantine: bool,
    /// It is frozen ([`super::frozen`]): its plain files and pages have no changes from after this position of the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen_changes_end: Option<u64>,
}

/// Server of an attach by an earlier `redoubt run`, which does not send a version.
pub const SERVER_NOT_SAID: ServerVersion =
    ServerVersion { family: Family::MariaDb, major: 10, minor: 11, patch: 0 };

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_false(value: &bool) -> bool {
    !*value
}

impl Identity {
    /// A new identity.
    pub fn new() -> Self {
        let volume_id = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        let attached_by = String::new();
        Self {
            format: FORMAT_OF_0_1_0,
            volume_id,
            generation: 0,
            attached_by,
            attached_server: None,
            newest_server: None,
            family: None,
            imported_to_lsn: 0,
            is_encrypted: false,
            is_imported_from_mysql: false,
            has_quarantine: false,
            frozen_changes_end: None,
        }
    }

    /// A new identity of a volume that lies at `home`.
    pub fn at(home: &dyn Home) -> Self {
        Self { is_encrypted: home.unlocked().is_some(), ..Self::new() }
    }

    /// Why this server must not have the volume.
    pub fn refused_server(&self, server: ServerVersion) -> Option<String> {
        self.newest_server.and_then(|newest| server.refused_after(newest))
    }

    /// The server of the newest generation. A node of 0.1.0 did not record it.
    pub fn server_of_generation(&self) -> ServerVersion {
        self.attached_server.unwrap_or(SERVER_NOT_SAID)
    }

    /// The identity after this server has changed pages or the redo log; `None`: it stays as it is.
    pub fn with_server_run(&self, server: ServerVersion) -> Option<Self> {
        let newest = self.newest_server.map_or(server, |newest| newest.newer_of(server));
        let family = self.family().unwrap_or(server.family).name().to_owned();
        let next = Self { newest_server: Some(newest), family: Some(family), ..self.clone() };
        (self.newest_server != next.newest_server || self.family != next.family).then_some(next)
    }

    /// Family of its servers; `None`: none has changed pages or the redo log, or 0.1.0 did not note it.
    pub fn family(&self) -> Option<Family> {
        let noted = self.family.as_deref().and_then(Family::named);
        let imported = self.is_imported_from_mysql.then_some(Family::MySql);
        noted.or(imported).or_else(|| Some(self.newest_server?.family))
    }

    /// [`Identity::family`], with the one that the redo log shows if none is noted.
    ///
    /// # Errors
    /// [`NodeError::Damaged`] if the two differ.
    pub fn family_with_log(
        &self,
        directory: &Folder,
        of_log: Option<Family>,
    ) -> Result<Option<Family>, NodeError> {
        match (self.family(), of_log) {
            (Some(noted), Some(of_log)) if noted != of_log => Err(NodeError::Damaged {
                path: directory.path().join(FILE_NAME),
                reason: format!(
                    "it names {noted} as the family of the servers, but the redo log of the volume is of {of_log}; put back the \
                     file that belongs to the volume"
                ),
            }),
            (noted, of_log) => Ok(noted.or(of_log)),
        }
    }

    /// Reads it from a volume's directory.
    ///
    /// # Errors
    /// [`NodeError::Io`], [`NodeError::Damaged`].
    pub fn read(directory: &Folder) -> Result<Self, NodeError> {
        let body = read_twice(directory, FILE_NAME)?;
        check_format(directory, FILE_NAME, &body, FORMAT_OF_0_1_0..=FORMAT)?;
        let identity: Self = parse(directory, FILE_NAME, &body)?;
        match identity.family.as_deref().filter(|family| Family::named(family).is_none()) {
            Some(family) => Err(NodeError::Damaged {
                path: directory.path().join(FILE_NAME),
                reason: format!(
                    "unknown family of servers {family}; use the version of Redoubt that wrote it"
                ),
            }),
            None => Ok(identity),
        }
    }

    /// The oldest format whose nodes can open the volume. An attached server counts before its first redo is stored.
    fn needed_format(&self) -> u32 {
        if self.has_quarantine || self.frozen_changes_end.is_some() {
            return FORMAT;
        }
        let servers = [self.attached_server, self.newest_server];
        let is_known_to_0_1_0 = servers
            .into_iter()
            .flatten()
            .all(|server| server.is_of_series(SERVER_NOT_SAID.family, SERVER_NOT_SAID.series()));
        if is_known_to_0_1_0 && !self.is_imported_from_mysql {
            FORMAT_OF_0_1_0
        } else {
            FORMAT_OF_OTHER_SERVERS
        }
    }

    /// Writes it again if an earlier build gave it a format that its content does not allow, or if one of the two files is
    /// lost.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn raise_format(&self, directory: &Folder) -> Result<(), NodeError> {
        if self.format < self.needed_format() { self.write(directory) } else { renew(directory, FILE_NAME) }
    }

    /// Writes it durably, with the format that its content needs.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn write(&self, directory: &Folder) -> Result<(), NodeError> {
        let body = serde_json::to_vec(&Self { format: self.needed_format(), ..self.clone() })
            .map_err(|error| NodeError::io("encode", directory.path().join(FILE_NAME), error.into()))?;
        write_twice(directory, FILE_NAME, &body)
    }
}

impl Default for Identity {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
