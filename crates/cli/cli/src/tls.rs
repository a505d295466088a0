//! Options and environment variables that name the credentials to use.
//!
//! Only paths go through options and environment, never the contents of the files.

use clap::Args;
pub use redoubt_client::credentials::check_volume;
use redoubt_client::credentials::{DIRECTORY_VARIABLE, FILE_VARIABLES};
use redoubt_client::{ClientError, Result};
use redoubt_transport::{ClientTls, Connector, CredentialFiles, ServerTls};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const HEADING: &str = "TLS";

/// See the module. The environment is read here and not by clap, which would count it as given by a person.
// Each option has its heading: one for the struct would go on to the options of the command after it.
#[derive(Args, Clone, Debug, Default)]
pub struct TlsArguments {
    /// Directory with authority.pem, certificate.pem and key.pem, made by `redoubt certificates` [env: REDOUBT_TLS].
    /// Without it the connection is in plain text and without authentication.
    #[arg(long, help_heading = HEADING, value_name = "DIR", conflicts_with_all = ["tls_authority", "tls_certificate", "tls_key"])]
    pub tls: Option<PathBuf>,
    /// Certificates of the authorities to trust, instead of --tls [env: REDOUBT_TLS_AUTHORITY].
    #[arg(long, help_heading = HEADING, value_name = "FILE", requires = "tls_certificate")]
    pub tls_authority: Option<PathBuf>,
    /// Own certificate, instead of --tls [env: REDOUBT_TLS_CERTIFICATE].
    #[arg(long, help_heading = HEADING, value_name = "FILE", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// Key of the own certificate, instead of --tls [env: REDOUBT_TLS_KEY].
    #[arg(long, help_heading = HEADING, value_name = "FILE", requires = "tls_authority")]
    pub tls_key: Option<PathBuf>,
}

impl TlsArguments {
    /// The files to use; `None`: plain text.
    ///
    /// # Errors
    /// [`ClientError::Usage`] if the environment names only some of them.
    pub fn files(&self) -> Result<Option<CredentialFiles>> {
        if let Some(directory) = &self.tls {
            return in_directory(directory).map(Some);
        }
        if let (Some(authority), Some(certificate), Some(key)) =
            (&self.tls_authority, &self.tls_certificate, &self.tls_key)
        {
            return single(authority, certificate, key).map(Some);
        }
        let variable =
            |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(directory) = variable(DIRECTORY_VARIABLE) {
            return in_directory(&directory).map(Some);
        }
        let found = FILE_VARIABLES.map(variable);
        match &found {
            [Some(authority), Some(certificate), Some(key)] => single(authority, certificate, key).map(Some),
            [None, None, None] => Ok(None),
            _ => {
                Err(ClientError::Usage(format!("set all of {}, or none of them", FILE_VARIABLES.join(", "))))
            }
        }
    }

    /// A node's side.
    ///
    /// # Errors
    /// [`ClientError::Usage`] saying what is wrong with the files.
    pub fn server(&self) -> Result<Option<Arc<ServerTls>>> {
        let Some(files) = self.files()? else { return Ok(None) };
        Ok(Some(Arc::new(ServerTls::load(files).map_err(|error| ClientError::Usage(error.to_string()))?)))
    }

    /// How to reach the node at `address`.
    ///
    /// # Errors
    /// [`ClientError::Usage`] saying what is wrong with the files.
    pub fn connector(&self, address: String) -> Result<Connector> {
        let tls = match self.files()? {
            Some(files) => {
                let tls = ClientTls::load(files).map_err(|error| ClientError::Usage(error.to_string()))?;
                Some(Arc::new(tls))
            }
            None => None,
        };
        Ok(Connector { address, tls, silence_limit: None, local_socket: false })
    }
}

fn in_directory(directory: &Path) -> Result<CredentialFiles> {
    if !directory.is_dir() {
        return Err(ClientError::Usage(format!(
            "{} is not a directory; --tls names one with authority.pem, certificate.pem and key.pem, made by \
             `redoubt certificates create`",
            directory.display()
        )));
    }
    if directory.join("authority").is_dir() && !directory.join("certificate.pem").exists() {
        return Err(ClientError::Usage(format!(
            "{0} is the directory of the authority; --tls names one of the bundles in it, such as {0}/administrator, or \
             for a node {0}/node-HOST",
            directory.display()
        )));
    }
    // A server may change its working directory.
    let directory = directory.canonicalize().map_err(|error| ClientError::io("open", directory, error))?;
    Ok(CredentialFiles::in_directory(&directory))
}

fn single(authority: &Path, certificate: &Path, key: &Path) -> Result<CredentialFiles> {
    let absolute =
        |path: &Path| std::path::absolute(path).map_err(|error| ClientError::io("open", path, error));
    Ok(CredentialFiles {
        authority: absolute(authority)?,
        certificate: absolute(certificate)?,
        key: absolute(key)?,
        removed: None,
    })
}
