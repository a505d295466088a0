//! `wsrep_provider_options`: `name = value` pairs with semicolons between them.
//!
//! Options with Galera's meaning have Galera's names. Galera's other options are accepted and ignored, so that an
//! existing configuration works. Any other name is an error.

use crate::backlog::DEFAULT_LEN_BYTES;
use crate::order::DEFAULT_CATCH_UP_LEN_BYTES;
use crate::store::DEFAULT_KEPT_LEN_BYTES;
use redoubt_codec::parse_size;
use redoubt_transport::CredentialFiles;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::path::PathBuf;

pub mod parameters;

/// The option that acts instead of being stored: it removes the member of this name.
pub const REMOVE: &CStr = c"redoubt.remove";

/// Prefixes of ignored Galera options.
const IGNORED: &[&str] = &[
    "base_dir",
    "base_host",
    "cert.",
    "debug",
    "dbug",
    "evs.",
    "gcache.",
    "gcomm.",
    "gcs.",
    "gmcast.",
    "ist.",
    "pc.",
    "protonet.",
    "repl.",
    "signal",
    "socket.",
    "allocator.",
];

/// Default port for other members.
pub const DEFAULT_PORT: u16 = 4567;
/// Default maximum length of a write set, in bytes.
pub const DEFAULT_MAX_WRITE_SET_LEN_BYTES: u64 = 32 << 20;

/// Default timeout of causal reads, in milliseconds; the same as Galera's.
pub const DEFAULT_CAUSAL_READ_TIMEOUT_MS: u64 = 30_000;

/// Credentials for encrypted connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// `redoubt.tls`: a bundle of `redoubt certificates`.
    pub bundle: Option<PathBuf>,
    /// `socket.ssl_ca`.
    pub authority: Option<PathBuf>,
    /// `socket.ssl_cert`.
    pub certificate: Option<PathBuf>,
    /// `socket.ssl_key`.
    pub key: Option<PathBuf>,
    /// `socket.ssl`. Off: certificates are ignored. On: certificates are required. `None`: used if there are any.
    pub is_wanted: Option<bool>,
}

impl Tls {
    /// The files, if connections are to be encrypted.
    ///
    /// # Errors
    /// Some files are named, but not all.
    pub fn files(&self) -> Result<Option<CredentialFiles>, OptionError> {
        let parts = (&self.authority, &self.certificate, &self.key);
        match (self.is_wanted, &self.bundle, parts) {
            (Some(false), ..) | (None, None, (None, None, None)) => Ok(None),
            (_, Some(bundle), (None, None, None)) => Ok(Some(CredentialFiles::in_directory(bundle))),
            (_, None, (Some(authority), Some(certificate), Some(key))) => Ok(Some(CredentialFiles {
                authority: authority.clone(),
                certificate: certificate.clone(),
                key: key.clone(),
                removed: Some(certificate.with_file_name("removed")),
            })),
            _ => Err(OptionError::Tls),
        }
    }
}

/// The options of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `base_port`: port of this member, unless its address has one.
    pub base_port: u16,
    /// `gmcast.listen_addr`: address on which this member listens; the port is optional.
    pub listen_address: Option<String>,
    /// `repl.max_ws_size`, in bytes.
    pub max_write_set_len_bytes: u64,
    /// `gcache.size`: how much of the log before its last checkpoint is retained for returning members, in bytes.
    pub kept_log_len_bytes: u64,
    /// `redoubt.catch_up_memory`: how much stays in memory for them, in bytes.
    pub catch_up_len_bytes: u64,
    /// `redoubt.apply_memory`: memory limit of the appliers' queue, in bytes.
    pub apply_len_bytes: u64,
    /// `repl.causal_read_timeout`, in milliseconds.
    pub causal_read_timeout_ms: u64,
    /// `gmcast.isolate`: cuts all connections to other members, for tests.
    pub is_isolated: bool,
    /// `pc.ignore_sb`: one of two members continues alone when the other one is unreachable.
    pub goes_on_alone: bool,
    /// `redoubt.tls`, or `socket.ssl_ca`, `socket.ssl_cert`, `socket.ssl_key`.
    pub tls: Tls,
    /// `redoubt.members`: names of permitted members. Empty: all that have a certificate of the group.
    pub members: BTreeSet<String>,
    given: BTreeMap<String, String>,
}

/// Reason why a list of options is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// The `=` is missing.
    #[error("provider option {0:?} is not of the form name=value")]
    NoValue(String),
    /// Unknown option. The message is Galera's.
    #[error("Unknown parameter '{0}' among the provider options")]
    Unknown(String),
    /// Some files are named, but not all.
    #[error(
        "encryption needs credentials: set redoubt.tls=DIRECTORY (a bundle of `redoubt certificates`), or all \
         of socket.ssl_ca, socket.ssl_cert and socket.ssl_key"
    )]
    Tls,
    /// Invalid value.
    #[error("invalid provider option {name}={value:?}: {wanted}")]
    Value {
        /// Name of the option.
        name: String,
        /// The given value.
        value: String,
        /// The wanted value.
        wanted: &'static str,
    },
}

impl Default for Options {
    fn default() -> Self {
        Self {
            base_port: DEFAULT_PORT,
            listen_address: None,
            max_write_set_len_bytes: DEFAULT_MAX_WRITE_SET_LEN_BYTES,
            kept_log_len_bytes: DEFAULT_KEPT_LEN_BYTES,
            catch_up_len_bytes: DEFAULT_CATCH_UP_LEN_BYTES,
            apply_len_bytes: DEFAULT_LEN_BYTES,
            causal_read_timeout_ms: DEFAULT_CAUSAL_READ_TIMEOUT_MS,
            is_isolated: false,
            goes_on_alone: false,
            tls: Tls::default(),
            members: BTreeSet::new(),
            given: BTreeMap::new(),
        }
    }
}

impl Options {
    /// Sets options from a list, in addition to those that are set.
    ///
    /// # Errors
    /// Nothing is changed after an error.
    pub fn set(&mut self, text: &str) -> Result<(), OptionError> {
        let mut new = self.clone();
        for pair in text.split(';').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| OptionError::NoValue(pair.to_owned()))?;
            new.set_one(name.trim(), value.trim())?;
        }
        *self = new;
        Ok(())
    }

    fn set_one(&mut self, name: &str, value: &str) -> Result<(), OptionError> {
        let wrong = |wanted| OptionError::Value { name: name.to_owned(), value: value.to_owned(), wanted };
        let size = || parse_size(value).map_err(|_| wrong("a number of bytes; K, M and G may follow it"));
        match name {
            "base_port" => self.base_port = value.parse().map_err(|_| wrong("a port, 1 to 65535"))?,
            "gmcast.listen_addr" => {
                let address = value.trim_start_matches("tcp://").trim_start_matches("ssl://");
                if address.is_empty() {
                    return Err(wrong("host:port, or host"));
                }
                self.listen_address = Some(address.to_owned());
            }
            "repl.max_ws_size" => {
                self.max_write_set_len_bytes = size()?.min(DEFAULT_MAX_WRITE_SET_LEN_BYTES);
            }
            "gcache.size" => self.kept_log_len_bytes = size()?,
            "redoubt.catch_up_memory" => self.catch_up_len_bytes = size()?,
            "redoubt.apply_memory" => self.apply_len_bytes = size()?,
            "repl.causal_read_timeout" => {
                let time = parse_period_ms(value).filter(|time| *time > 0);
                self.causal_read_timeout_ms =
                    time.ok_or_else(|| wrong("a period such as PT30S, PT0.5S or PT1M"))?;
            }
            "gmcast.isolate" => {
                self.is_isolated = parse_switch(value).ok_or_else(|| wrong("0 or 1"))?;
            }
            "pc.ignore_sb" => {
                self.goes_on_alone = parse_switch(value).ok_or_else(|| wrong("YES or NO"))?;
            }
            "redoubt.tls" => self.tls.bundle = Some(value.into()),
            "socket.ssl_ca" => self.tls.authority = Some(value.into()),
            "socket.ssl_cert" => self.tls.certificate = Some(value.into()),
            "socket.ssl_key" => self.tls.key = Some(value.into()),
            "socket.ssl" => {
                self.tls.is_wanted = Some(parse_switch(value).ok_or_else(|| wrong("YES or NO"))?);
            }
            "redoubt.members" => {
                let names = value.split(',').map(str::trim).filter(|name| !name.is_empty());
                self.members = names.map(str::to_owned).collect();
                if self.members.is_empty() {
                    return Err(wrong("names with commas between them"));
                }
            }
            other if IGNORED.iter().any(|known| other.starts_with(known)) => {}
            other => return Err(OptionError::Unknown(other.to_owned())),
        }
        self.given.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    /// All options as text: the given values, and the defaults of others.
    pub fn text(&self) -> String {
        let mut all = self.given.clone();
        all.entry("base_port".into()).or_insert_with(|| self.base_port.to_string());
        all.insert("repl.max_ws_size".into(), self.max_write_set_len_bytes.to_string());
        for (name, default) in
            [("gcache.size", "128M"), ("redoubt.catch_up_memory", "32M"), ("redoubt.apply_memory", "64M")]
        {
            all.entry(name.into()).or_insert_with(|| default.into());
        }
        all.iter().map(|(name, value)| format!("{name} = {value}; ")).collect()
    }
}

fn parse_switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "yes" | "on" | "true" | "1" => Some(true),
        "no" | "off" | "false" | "0" => Some(false),
        _ => None,
    }
}

/// Parses an ISO 8601 period as Galera does: hours, minutes and seconds after `PT`, seconds with a fraction.
fn parse_period_ms(text: &str) -> Option<u64> {
    let mut rest = text.strip_prefix("PT")?;
    let mut time_ms = 0.0;
    for (unit, len_ms) in [('H', 3_600_000.0), ('M', 60_000.0), ('S', 1000.0)] {
        if let Some((number, after)) = rest.split_once(unit) {
            let is_plain = !number.is_empty() && number.chars().all(|it| it.is_ascii_digit() || it == '.');
            time_ms += number.parse::<f64>().ok().filter(|_| is_plain)? * len_ms;
            rest = after;
        }
    }
    (rest.is_empty() && text.len() > "PT".len() && time_ms < 1e15).then_some(time_ms as u64)
}

#[cfg(test)]
mod tests;
