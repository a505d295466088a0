//! Credentials of a client: the variables that name them, and whether they are for a volume.

use crate::error::{ClientError, Result};
use redoubt_transport::{Connector, Identity};

/// Environment variable for `--tls`.
pub const DIRECTORY_VARIABLE: &str = "REDOUBT_TLS";
/// Environment variables for the single files; the preloaded library reads these.
pub const FILE_VARIABLES: [&str; 3] = ["REDOUBT_TLS_AUTHORITY", "REDOUBT_TLS_CERTIFICATE", "REDOUBT_TLS_KEY"];

/// The certificate must allow the use of the volume; saying it here names the file.
///
/// # Errors
/// [`ClientError::Usage`].
pub fn check_volume(connector: &Connector, volume: &str) -> Result<()> {
    if let Some(tls) = &connector.tls
        && let Identity::Volume(own) = tls.identity()
        && own != volume
    {
        return Err(ClientError::Usage(format!(
            "{} is the certificate of volume {own}, not of {volume}; use the one of that volume or the administrator's",
            tls.files().certificate.display()
        )));
    }
    Ok(())
}
