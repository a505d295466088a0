//! The server's key management plugin for tests of encrypted tables: its location, and the server options that load it.
//!
//! `file_key_management` is in Debian's package `mariadb-server`. It knows one version of a key; `debug_key_management`
//! of the package `mariadb-test` has as many as one likes. See [`crate::plugins`].

use redoubt_workload::error::{Error, Result};
use redoubt_workload::server::ServerConfig;

use crate::plugins;

/// Name of the plugin's file without its ending, and of the plugin.
pub const FILE_KEY_MANAGEMENT: &str = "file_key_management";
/// The same of the plugin that has versions of keys: `debug_key_management_version` is the newest one.
pub const DEBUG_KEY_MANAGEMENT: &str = "debug_key_management";
/// Two keys of 256 bits.
const KEYS: &str = "1;a7addd9adea9978fda19f21e6be987880e68ac92632ca052e5bb42b1a506939a\n\
                    2;770a8a65da156d24ee2a093277530142cf2cf1f8d1e2b2f5c4a6f1d3b5a7c9e0\n";

/// One of the plugin's keys.
pub fn key(id: u32) -> Option<[u8; 32]> {
    let hex = KEYS.lines().find_map(|line| line.strip_prefix(&format!("{id};")))?;
    let mut key = [0; 32];
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(key)
}

/// A plugin and its keys in a directory of their own.
#[derive(Debug)]
pub struct KeyPlugin {
    directory: tempfile::TempDir,
    name: String,
}

impl KeyPlugin {
    /// The plugin under its own name.
    ///
    /// # Errors
    /// As for [`KeyPlugin::named`].
    pub fn new() -> Result<Self> {
        Self::named(FILE_KEY_MANAGEMENT)
    }

    /// The plugin in a file of another name.
    ///
    /// # Errors
    /// [`Error::State`] when there is none here; [`Error::Io`].
    pub fn named(name: &str) -> Result<Self> {
        Self::copy_of(FILE_KEY_MANAGEMENT, name)
    }

    /// [`DEBUG_KEY_MANAGEMENT`].
    ///
    /// # Errors
    /// As for [`KeyPlugin::named`].
    pub fn with_versions() -> Result<Self> {
        Self::copy_of(DEBUG_KEY_MANAGEMENT, DEBUG_KEY_MANAGEMENT)
    }

    fn copy_of(plugin: &str, name: &str) -> Result<Self> {
        let directory = tempfile::tempdir().map_err(Error::io("make a directory for a plugin"))?;
        let path = directory.path().join(format!("{name}.so"));
        std::fs::copy(plugins::find(plugin)?, &path).map_err(Error::io_at("write", &path))?;
        let keys = directory.path().join("keys");
        std::fs::write(&keys, KEYS).map_err(Error::io_at("write", &keys))?;
        Ok(Self { directory, name: name.to_owned() })
    }

    /// Options that say where plugin and keys are, without loading it.
    pub fn places(&self) -> Vec<String> {
        vec![
            format!("--plugin-dir={}", self.directory.path().display()),
            format!("--loose-file-key-management-filename={}", self.directory.path().join("keys").display()),
        ]
    }

    /// Options that load it.
    pub fn options(&self) -> Vec<String> {
        [self.places(), vec![format!("--plugin-load-add={}", self.name)]].concat()
    }

    /// A server that loads it at every start, not when it is installed.
    pub fn on(&self, mut config: ServerConfig) -> ServerConfig {
        config.server_args.extend(self.options());
        config
    }
}
