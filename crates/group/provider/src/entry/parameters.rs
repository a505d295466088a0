//! What servers of later series ask of a library that they have loaded, beside the table of functions.
//!
//! They look for these functions by name. Without the list of parameters they do not use the library.

use super::{Table, guarded, lock, provider};
use crate::abi::{
    PARAMETER_INTEGER, PARAMETER_READ_ONLY, PARAMETER_SWITCH, Parameter, ParameterService, ParameterTaker,
    ParameterValue, Status,
};
use crate::options::{Options, parameters};
use std::ffi::{CString, c_int, c_void};

/// Says each option to the server, in turn.
///
/// # Safety
/// A table that [`super::wsrep_loader`] has filled; the server's function and what it wants with it.
unsafe extern "C" fn get(table: Table, take: Option<ParameterTaker>, context: *mut c_void) -> c_int {
    guarded("parameters", || {
        let Some(take) = take else { return Status::NodeFail as c_int };
        // SAFETY: the caller's. Before `init` there is no provider, and the defaults hold.
        let options = unsafe { provider(table) }.map(|provider| lock(&provider.options).clone());
        for parameter in options.unwrap_or_else(Options::default).parameters() {
            let text = match &parameter.value {
                parameters::Value::Text(text) => CString::new(text.as_str()).unwrap_or_default(),
                _ => CString::default(),
            };
            let (kind, value) = match parameter.value {
                parameters::Value::Text(_) => (0, ParameterValue { text: text.as_ptr() }),
                parameters::Value::Switch(is_on) => (PARAMETER_SWITCH, ParameterValue { switch: is_on }),
                parameters::Value::Number(number) => (PARAMETER_INTEGER, ParameterValue { integer: number }),
            };
            let flags = kind | if parameter.is_live { 0 } else { PARAMETER_READ_ONLY };
            let parameter = Parameter { flags, name: parameter.name.as_ptr(), value };
            // SAFETY: the server's function; it copies what it is given, which lives until after the call.
            let status = unsafe { take(&raw const parameter, context) };
            if status != Status::Ok as c_int {
                return status;
            }
        }
        Status::Ok as c_int
    })
}

/// Where the list comes from.
///
/// # Safety
/// Null, or a service that can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wsrep_init_config_service_v1(service: *mut ParameterService) -> c_int {
    // SAFETY: the caller's.
    match unsafe { service.as_mut() } {
        Some(service) => {
            service.get = Some(get);
            Status::Ok as c_int
        }
        None => Status::NodeFail as c_int,
    }
}

/// The other way round.
#[unsafe(no_mangle)]
pub extern "C" fn wsrep_deinit_config_service_v1() {}

/// The server offers to be told how far a state transfer is (`wsrep_status_file`). Nothing is said: its own script
/// transfers the state. Taking the offer saves a warning at each start.
#[unsafe(no_mangle)]
pub extern "C" fn wsrep_init_event_service_v1(_service: *mut c_void) -> c_int {
    0
}

/// The other way round.
#[unsafe(no_mangle)]
pub extern "C" fn wsrep_deinit_event_service_v1() {}
