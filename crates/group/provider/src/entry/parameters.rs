//! Functions that servers of later series look up in the library, in addition to the table of functions.
//!
//! They are looked up by name. Without the list of parameters such a server does not use the library.

use super::{Table, guarded, lock, provider};
use crate::abi::{
    PARAMETER_INTEGER, PARAMETER_READ_ONLY, PARAMETER_SWITCH, Parameter, ParameterService, ParameterTaker,
    ParameterValue, Status,
};
use crate::options::{Options, parameters};
use std::ffi::{CString, c_int, c_void};

/// Passes each option to the server, one after the other.
///
/// # Safety
/// `table` was filled by [`super::wsrep_loader`]; `take` and `context` are the server's function and its argument.
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
            // SAFETY: the server's function; it copies its argument, which lives until after the call.
            let status = unsafe { take(&raw const parameter, context) };
            if status != Status::Ok as c_int {
                return status;
            }
        }
        Status::Ok as c_int
    })
}

/// Sets the function that lists the parameters.
///
/// # Safety
/// The pointer is null, or to a writable service.
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

/// Counterpart of [`wsrep_init_config_service_v1`].
#[unsafe(no_mangle)]
pub extern "C" fn wsrep_deinit_config_service_v1() {}

/// The server offers a service for the progress of state transfers (`wsrep_status_file`). It is not used, as the
/// server's own script transfers the state. Accepting the offer saves a warning at each start.
#[unsafe(no_mangle)]
pub extern "C" fn wsrep_init_event_service_v1(_service: *mut c_void) -> c_int {
    0
}

/// Counterpart of [`wsrep_init_event_service_v1`].
#[unsafe(no_mangle)]
pub extern "C" fn wsrep_deinit_event_service_v1() {}
