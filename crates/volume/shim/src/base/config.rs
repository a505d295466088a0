//! Configuration that `redoubt run` passes to the library in environment variables.
//!
//! Pure: a lookup function comes in, so that tests need no environment. Every refusal names the variable.

use redoubt_redo::Family;
use redoubt_transport::CredentialFiles;
use redoubt_wire::ServerVersion;
use redoubt_wire::greeting::required_by;
use redoubt_wire::hello::Compression;
use redoubt_wire::negotiation::Features;
use redoubt_wire::stream::SystemFile;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

/// A variable that is missing or wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("environment variable {name} {why}; start the server with `redoubt run`, which sets it")]
pub struct ConfigError {
    /// The variable.
    pub name: &'static str,
    /// The defect.
    pub why: String,
}

/// Selection of the dropped page writes that the node verifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// None.
    Off,
    /// One of this many (1: all).
    OneOf(u64),
}

/// Action on a page that differs from the node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDifference {
    /// The node takes this server's page.
    Heal,
    /// The volume stops.
    Stop,
}

/// Configuration of the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Family of the server.
    pub family: Family,
    /// Features of a node that can apply the server's redo.
    pub required_features: Features,
    /// Address of the storage node, `host:port`.
    pub node: String,
    /// Name of the volume.
    pub volume: String,
    /// Generation of the attachment.
    pub generation: u64,
    /// Absolute path of the data directory, without symbolic links.
    pub datadir: Vec<u8>,
    /// Files of the system tablespace, in order.
    pub system_files: Vec<SystemFile>,
    /// Patterns of files that stay local.
    pub local_files: Vec<Vec<u8>>,
    /// Selection of the dropped page writes that the node verifies.
    pub verify: Verify,
    /// Action on a page that differs from the node's.
    pub on_difference: OnDifference,
    /// Data to compress, if the node agrees.
    pub compress: Compression,
    /// The node may hold the pages of encrypted tablespaces in clear.
    pub clear_pages: bool,
    /// Timeout of the wait for a lost node.
    pub timeout: Duration,
    /// `innodb_page_size` in bytes.
    pub page_size_bytes: u32,
    /// A node on this host is reached over its local socket.
    pub local_socket: bool,
    /// TLS with these credentials; `None`: plain text.
    pub tls: Option<CredentialFiles>,
    /// Size of the page cache; `None`: there is none.
    pub page_cache_len_bytes: Option<u64>,
    /// Maximum number of bytes to request ahead of a sequential reader at once; 0: none.
    pub read_ahead_len_bytes: u64,
    /// Directory of the page cache's file; `None`: it is in memory.
    pub page_cache_directory: Option<Vec<u8>>,
}

/// Name of the variable that switches the library on.
pub const NODE_VARIABLE: &str = "REDOUBT_NODE";
/// Name of the variable that switches the library on for a server without a storage node: `map-sync` or `pretend`.
pub const LOCAL_LOG_VARIABLE: &str = "REDOUBT_LOCAL_LOG";
/// Name of the variable with the data directory.
pub const DATADIR_VARIABLE: &str = "REDOUBT_DATADIR";

const SERVER_OF_0_1_0: ServerVersion =
    ServerVersion { family: Family::MariaDb, major: 10, minor: 11, patch: 0 };

type Lookup<'a> = dyn Fn(&str) -> Option<Vec<u8>> + 'a;

impl Config {
    /// Reads the variables through `lookup`.
    ///
    /// # Errors
    /// [`ConfigError`] for the first variable that is missing or invalid.
    pub fn from_variables(lookup: &Lookup<'_>) -> Result<Self, ConfigError> {
        let node = text(lookup, NODE_VARIABLE)?;
        if !node.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        {
            return Err(wrong(NODE_VARIABLE, format!("is {node:?}, expected address:port")));
        }
        let datadir = bytes(lookup, DATADIR_VARIABLE)?;
        if !datadir.starts_with(b"/") || datadir.len() < 2 {
            return Err(wrong(DATADIR_VARIABLE, "is not an absolute path below /".to_owned()));
        }
        let (server, required_features) = server(lookup)?;
        Ok(Self {
            family: server.family,
            required_features,
            node,
            volume: text(lookup, "REDOUBT_VOLUME")?,
            generation: number(lookup, "REDOUBT_GENERATION", None)?,
            datadir: datadir.strip_suffix(b"/").unwrap_or(&datadir).to_vec(),
            system_files: system_files(&bytes(lookup, "REDOUBT_SYSTEM_FILES")?)?,
            local_files: lookup("REDOUBT_LOCAL_FILES")
                .unwrap_or_default()
                .split(|byte| *byte == b':')
                .filter(|pattern| !pattern.is_empty())
                .map(<[u8]>::to_vec)
                .collect(),
            verify: verify(lookup)?,
            on_difference: on_difference(lookup)?,
            compress: compression(lookup)?,
            clear_pages: flag(lookup, "REDOUBT_CLEAR_PAGES")?,
            timeout: Duration::from_secs(number(lookup, "REDOUBT_TIMEOUT_S", Some(600))?.max(1)),
            page_size_bytes: page_size(number(lookup, "REDOUBT_PAGE_SIZE", Some(16384))?)?,
            local_socket: flag(lookup, "REDOUBT_LOCAL_SOCKET")?,
            tls: tls(lookup)?,
            page_cache_len_bytes: Some(number(lookup, "REDOUBT_PAGE_CACHE_BYTES", Some(0))?)
                .filter(|len| *len > 0),
            read_ahead_len_bytes: number(lookup, "REDOUBT_READ_AHEAD_BYTES", Some(0))?,
            page_cache_directory: lookup("REDOUBT_PAGE_CACHE_DIRECTORY").filter(|path| !path.is_empty()),
        })
    }
}

/// The server, and the features of a node that can apply its redo.
fn server(lookup: &Lookup<'_>) -> Result<(ServerVersion, Features), ConfigError> {
    const NAME: &str = "REDOUBT_SERVER_VERSION";
    // `redoubt run` of 0.1.0 sets neither of the two, and starts nothing but MariaDB 10.11. Its environment is that of
    // a server which a script starts again after the library was upgraded.
    if [NAME, "REDOUBT_FAMILY"].iter().all(|name| lookup(name).is_none()) {
        return Ok((SERVER_OF_0_1_0, Features::NONE));
    }
    let value = text(lookup, NAME)?;
    let server: ServerVersion =
        value.parse().map_err(|why: String| wrong(NAME, format!("is wrong: {why}")))?;
    let features = required_by(server).ok_or_else(|| {
        wrong(NAME, format!("is {value:?}, a series that this version of Redoubt does not support"))
    })?;
    Ok((server, features))
}

/// All of the files, or none.
fn tls(lookup: &Lookup<'_>) -> Result<Option<CredentialFiles>, ConfigError> {
    const NAMES: [&str; 3] = ["REDOUBT_TLS_AUTHORITY", "REDOUBT_TLS_CERTIFICATE", "REDOUBT_TLS_KEY"];
    if NAMES.iter().all(|name| lookup(name).is_none()) {
        return Ok(None);
    }
    let path = |name| Ok(PathBuf::from(OsString::from_vec(bytes(lookup, name)?)));
    let [authority, certificate, key] = NAMES;
    Ok(Some(CredentialFiles {
        authority: path(authority)?,
        certificate: path(certificate)?,
        key: path(key)?,
        removed: None,
    }))
}

fn wrong(name: &'static str, why: String) -> ConfigError {
    ConfigError { name, why }
}

fn bytes(lookup: &Lookup<'_>, name: &'static str) -> Result<Vec<u8>, ConfigError> {
    match lookup(name) {
        Some(value) if !value.is_empty() => Ok(value),
        _ => Err(wrong(name, "is not set".to_owned())),
    }
}

fn text(lookup: &Lookup<'_>, name: &'static str) -> Result<String, ConfigError> {
    String::from_utf8(bytes(lookup, name)?).map_err(|_| wrong(name, "is not UTF-8".to_owned()))
}

fn number(lookup: &Lookup<'_>, name: &'static str, default: Option<u64>) -> Result<u64, ConfigError> {
    match (lookup(name), default) {
        (None, Some(default)) => Ok(default),
        _ => {
            let value = text(lookup, name)?;
            value.parse().map_err(|_| wrong(name, format!("is {value:?}, expected a number")))
        }
    }
}

fn flag(lookup: &Lookup<'_>, name: &'static str) -> Result<bool, ConfigError> {
    match number(lookup, name, Some(0))? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(wrong(name, format!("is {other}, expected 0 or 1"))),
    }
}

fn compression(lookup: &Lookup<'_>) -> Result<Compression, ConfigError> {
    const NAME: &str = "REDOUBT_COMPRESS";
    let Some(value) = lookup(NAME) else { return Ok(Compression::Off) };
    match value.as_slice() {
        b"0" => Ok(Compression::Off),
        b"1" => Ok(Compression::On),
        b"auto" => Ok(Compression::Auto),
        _ => Err(wrong(NAME, format!("is {:?}, expected 0, 1 or auto", String::from_utf8_lossy(&value)))),
    }
}

fn page_size(value: u64) -> Result<u32, ConfigError> {
    match u32::try_from(value) {
        Ok(size) if size.is_power_of_two() && (4096..=65536).contains(&size) => Ok(size),
        _ => {
            Err(wrong("REDOUBT_PAGE_SIZE", format!("is {value}, expected 4096, 8192, 16384, 32768 or 65536")))
        }
    }
}

fn verify(lookup: &Lookup<'_>) -> Result<Verify, ConfigError> {
    const NAME: &str = "REDOUBT_VERIFY";
    let Some(value) = lookup(NAME) else { return Ok(Verify::OneOf(1)) };
    let value = String::from_utf8_lossy(&value).into_owned();
    match value.as_str() {
        "off" => Ok(Verify::Off),
        "all" => Ok(Verify::OneOf(1)),
        _ => match value.strip_prefix("1/").and_then(|rest| rest.parse().ok()) {
            Some(n) if n > 0 => Ok(Verify::OneOf(n)),
            _ => Err(wrong(NAME, format!("is {value:?}, expected all, off or 1/N"))),
        },
    }
}

/// `redoubt run` of versions without the variable expect a stop.
fn on_difference(lookup: &Lookup<'_>) -> Result<OnDifference, ConfigError> {
    const NAME: &str = "REDOUBT_ON_DIFFERENCE";
    match lookup(NAME).as_deref() {
        None | Some(b"stop") => Ok(OnDifference::Stop),
        Some(b"heal") => Ok(OnDifference::Heal),
        Some(other) => {
            Err(wrong(NAME, format!("is {:?}, expected heal or stop", String::from_utf8_lossy(other))))
        }
    }
}

fn system_files(value: &[u8]) -> Result<Vec<SystemFile>, ConfigError> {
    const NAME: &str = "REDOUBT_SYSTEM_FILES";
    let mut files = Vec::new();
    for part in value.split(|byte| *byte == b';') {
        let part = String::from_utf8_lossy(part);
        let parsed = part.rsplit_once(':').and_then(|(path, len)| {
            let path = path.strip_prefix("./").unwrap_or(path);
            Some((path.as_bytes().to_vec(), len.parse::<u64>().ok()?))
        });
        match parsed {
            Some((path, len_bytes)) if !path.is_empty() => files.push(SystemFile { path, len_bytes }),
            _ => return Err(wrong(NAME, format!("has the part {part:?}, expected path:length"))),
        }
    }
    if files.iter().rev().skip(1).any(|file| file.len_bytes == 0) {
        return Err(wrong(NAME, "has length 0 for a file that is not the last one".to_owned()));
    }
    Ok(files)
}

#[cfg(test)]
#[path = "config/tests.rs"]
mod tests;
