//! The options by name and value, for servers that expose each of them as a variable.
//!
//! MariaDB 11.4 and later request this list from every provider at load time, and use no provider without one. With
//! `plugin_wsrep_provider=ON` the variables are `wsrep_provider_redoubt_tls` and so on, instead of
//! `wsrep_provider_options`. Ignored Galera options are not listed.

use super::{DEFAULT_CATCH_UP_LEN_BYTES, DEFAULT_KEPT_LEN_BYTES, DEFAULT_LEN_BYTES, Options, REMOVE};
use std::ffi::CStr;

/// Value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text in the format of [`Options::set`]. Empty: not set.
    Text(String),
    /// On or off.
    Switch(bool),
    /// A number.
    Number(i64),
}

/// An option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Name, as in `wsrep_provider_options`.
    pub name: &'static CStr,
    /// Current value.
    pub value: Value,
    /// It can be set at run time.
    pub is_live: bool,
}

impl Options {
    /// All options. Bytes of a path or name that are not UTF-8 are replaced.
    pub fn parameters(&self) -> Vec<Parameter> {
        let given = |name: &CStr, otherwise: &str| {
            let given = name.to_str().ok().and_then(|name| self.given.get(name));
            Value::Text(given.map_or(otherwise, String::as_str).to_owned())
        };
        let text = |name, otherwise: &str| Parameter { name, value: given(name, otherwise), is_live: false };
        let size = |name, default_len_bytes: u64| text(name, &format!("{}M", default_len_bytes >> 20));
        let live = |name, value| Parameter { name, value, is_live: true };
        vec![
            Parameter { name: c"base_port", value: Value::Number(i64::from(self.base_port)), is_live: false },
            text(c"gmcast.listen_addr", ""),
            live(c"repl.max_ws_size", Value::Text(self.max_write_set_len_bytes.to_string())),
            live(c"repl.causal_read_timeout", given(c"repl.causal_read_timeout", "PT30S")),
            size(c"gcache.size", DEFAULT_KEPT_LEN_BYTES),
            size(c"redoubt.catch_up_memory", DEFAULT_CATCH_UP_LEN_BYTES),
            size(c"redoubt.apply_memory", DEFAULT_LEN_BYTES),
            live(c"gmcast.isolate", Value::Switch(self.is_isolated)),
            live(c"pc.ignore_sb", Value::Switch(self.goes_on_alone)),
            text(c"redoubt.tls", ""),
            text(c"redoubt.members", ""),
            text(c"socket.ssl", ""),
            text(c"socket.ssl_ca", ""),
            text(c"socket.ssl_cert", ""),
            text(c"socket.ssl_key", ""),
            live(REMOVE, Value::Text(String::new())),
        ]
    }
}
