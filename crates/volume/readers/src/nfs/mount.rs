//! The MOUNT program, version 3 (RFC 1813, appendix I).

use crate::nfs::exports::{Exports, MountError};
use crate::nfs::rpc::{AUTH_NONE, AUTH_SYS, Taken};
use crate::nfs::xdr::{Garbage, Reader, Writer};

/// Program number.
pub const PROGRAM: u32 = 100_005;
/// Program version.
pub const VERSION: u32 = 3;

const PATH_LIMIT_BYTES: usize = 1024;

const fn status(error: &MountError) -> u32 {
    match error {
        MountError::NoSuch => 2,
        MountError::Failed => 5,
        MountError::NotADirectory => 20,
        MountError::Invalid => 22,
    }
}

/// Executes a procedure and appends its result.
///
/// # Errors
/// [`Garbage`].
pub fn call(
    exports: &Exports,
    procedure: u32,
    mut arguments: Reader<'_>,
    out: &mut Writer,
) -> Result<Taken, Garbage> {
    match procedure {
        // Null, and UMNTALL: mounts are not recorded by client.
        0 | 4 => {}
        1 => {
            let path = arguments.opaque(PATH_LIMIT_BYTES)?;
            let mounted = std::str::from_utf8(path).map_err(|_| MountError::NoSuch);
            match mounted.and_then(|path| exports.mount(path)) {
                Ok(found) => {
                    out.u32(0).opaque(&found.handle().encode()).u32(2).u32(AUTH_SYS).u32(AUTH_NONE);
                }
                Err(error) => {
                    out.u32(status(&error));
                }
            }
        }
        // The list of mounts is empty: mounts are not recorded.
        2 => {
            out.bool(false);
        }
        3 => {
            let path = arguments.opaque(PATH_LIMIT_BYTES)?;
            if let Ok(path) = std::str::from_utf8(path) {
                exports.unmount(path);
            }
        }
        5 => {
            for name in exports.names() {
                out.bool(true).opaque(name.as_bytes()).bool(false);
            }
            out.bool(false);
        }
        _ => return Ok(Taken::NoProcedure),
    }
    Ok(Taken::Success)
}
