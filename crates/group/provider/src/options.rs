//! `wsrep_provider_options`: `name = value` pairs with semicolons between them.
//!
//! Names are Galera's where they mean the same. Galera's others are taken and mean nothing here, so that a
//! configuration can be used as it is; a name that is nobody's is an error that says so.

use crate::backlog::DEFAULT_LEN_BYTES;
use crate::order::DEFAULT_CATCH_UP_LEN_BYTES;
use crate::store::DEFAULT_KEPT_LEN_BYTES;
use redoubt_codec::parse_size;
use redoubt_transport::CredentialFiles;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::path::PathBuf;

pub mod parameters;

/// The option that does something instead of being kept: a member of this name is removed.
pub const REMOVE: &CStr = c"redoubt.remove";

/// Names of Galera's that have no meaning here begin so.
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

/// The port that members listen on if nothing else is said.
pub const DEFAULT_PORT: u16 = 4567;
/// The largest write set, in bytes, if nothing else is said.
pub const DEFAULT_MAX_WRITE_SET_LEN_BYTES: u64 = 32 << 20;

/// How long a read waits for what it must see, in milliseconds, if nothing else is said. As Galera's.
pub const DEFAULT_CAUSAL_READ_TIMEOUT_MS: u64 = 30_000;

/// Where certificates are.
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
    /// `socket.ssl`: off, though there may be certificates; on, though there are none; as there are.
    pub is_wanted: Option<bool>,
}

impl Tls {
    /// The files, if connections are to be encrypted.
    ///
    /// # Errors
    /// Some are named, and not all.
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

/// What can be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `base_port`: where this member listens unless its address says it.
    pub base_port: u16,
    /// `gmcast.listen_addr`: where this member listens; the port may be missing.
    pub listen_address: Option<String>,
    /// `repl.max_ws_size`, in bytes.
    pub max_write_set_len_bytes: u64,
    /// `gcache.size`: how much of the log is kept for members that were away, before its last checkpoint, in bytes.
    pub kept_log_len_bytes: u64,
    /// `redoubt.catch_up_memory`: what is kept in memory for them, in bytes.
    pub catch_up_len_bytes: u64,
    /// `redoubt.apply_memory`: what waits for the server's appliers in memory, in bytes.
    pub apply_len_bytes: u64,
    /// `repl.causal_read_timeout`, in milliseconds.
    pub causal_read_timeout_ms: u64,
    /// `gmcast.isolate`: it hears no other member and is heard by none. For trying out what happens then.
    pub is_isolated: bool,
    /// `pc.ignore_sb`: of two members one goes on alone when it does not hear the other one.
    pub goes_on_alone: bool,
    /// `redoubt.tls`, or `socket.ssl_ca`, `socket.ssl_cert`, `socket.ssl_key`.
    pub tls: Tls,
    /// `redoubt.members`: names of those that may be members. Empty: whoever has a certificate for the group.
    pub members: BTreeSet<String>,
    given: BTreeMap<String, String>,
}

/// What is wrong with a list of options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No `=`.
    #[error("provider option {0:?} is not of the form name=value")]
    NoValue(String),
    /// Nobody knows it. In the words that people know.
    #[error("Unknown parameter '{0}' among the provider options")]
    Unknown(String),
    /// Some files, and not all.
    #[error(
        "encryption needs credentials: set redoubt.tls=DIRECTORY (a bundle of `redoubt certificates`), or all \
         of socket.ssl_ca, socket.ssl_cert and socket.ssl_key"
    )]
    Tls,
    /// The value does not fit.
    #[error("invalid provider option {name}={value:?}: {wanted}")]
    Value {
        /// Which.
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
    /// Takes a list of options on top of those that are set.
    ///
    /// # Errors
    /// Nothing is changed then.
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

    /// All that is set, as text: what was given, and what holds otherwise.
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

/// Of ISO 8601, as Galera has it: hours, minutes and seconds after `PT`, seconds with a fraction.
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
