//! The report as one HTML page.

use super::RunReport;
use crate::error::Result;
use crate::server::Settings;

/// What the runs ran on.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// Name and value.
    pub facts: Vec<(&'static str, String)>,
}

impl Machine {
    /// Asks the machine.
    ///
    /// # Errors
    /// [`crate::Error::Command`].
    pub fn examine(settings: &Settings, data_bytes: u64) -> Result<Self> {
        Ok(Self {
            facts: vec![("server", settings.version()?), ("data", format!("{} MiB", data_bytes >> 20))],
        })
    }
}

/// The page.
///
/// # Errors
/// [`crate::Error::Plot`].
pub fn html(_runs: &[RunReport], _machine: &Machine, _command: &str) -> Result<String> {
    Ok(String::new())
}
