//! Programs that a member starts for a full state transfer (SST): the server's `wsrep_sst_*` scripts, and `rsync`.
//!
//! The scripts are the stock ones, of Debian's package `mariadb-server`: either installed or unpacked elsewhere.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use redoubt_workload::error::{Error, Result};
use redoubt_workload::process::find_program;

const SCRIPT: &str = "wsrep_sst_rsync";

/// Directory that a server adds in front of `PATH` unless `PATH` contains it in this spelling. In front it would hide
/// the `rsync` of [`wrap_rsync`].
const SERVERS_OWN: &str = "/usr//bin";

/// `PATH` of a member of a group in `directory`. `unpacked` is the location of the scripts if they are not installed.
///
/// # Errors
/// [`Error::ProgramMissing`], [`Error::Io`].
pub fn path(directory: &Path, unpacked: Option<&Path>) -> Result<OsString> {
    let rsync = find_program("rsync", "rsync")?;
    let mut places = Vec::new();
    if rustix::process::geteuid().is_root() {
        places.push(wrap_rsync(directory, &rsync)?);
    }
    places.push(scripts(unpacked)?);
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    places.extend(std::env::split_paths(&inherited));
    places.extend(["/usr/sbin", "/usr/bin", "/sbin", "/bin", SERVERS_OWN].map(PathBuf::from));
    std::env::join_paths(places).map_err(|error| Error::State(format!("PATH of a member: {error}")))
}

/// The directory with the scripts.
fn scripts(unpacked: Option<&Path>) -> Result<PathBuf> {
    if let Ok(script) = find_program(SCRIPT, "mariadb-server") {
        return Ok(script.parent().unwrap_or(Path::new("/")).to_owned());
    }
    match unpacked.filter(|unpacked| unpacked.join(SCRIPT).is_file()) {
        Some(unpacked) => unpacked.canonicalize().map_err(Error::io_at("find", unpacked)),
        None => Err(Error::missing(SCRIPT, "on Debian: apt-get install mariadb-server")),
    }
}

/// An `rsync` that receives files as root. A daemon of root would receive them as `nobody`, who may not write root's
/// data directory. The script does not change that, because servers do not run as root elsewhere.
fn wrap_rsync(directory: &Path, rsync: &Path) -> Result<PathBuf> {
    let bin = directory.join("bin");
    std::fs::create_dir_all(&bin).map_err(Error::io_at("create", &bin))?;
    let wrapper = bin.join("rsync");
    let text = format!(
        "#!/bin/sh\n\
         case \" $* \" in *' --daemon '*) set -- \"$@\" --dparam=uid=0 --dparam=gid=0 ;; esac\n\
         exec '{}' \"$@\"\n",
        rsync.display()
    );
    std::fs::write(&wrapper, text).map_err(Error::io_at("write", &wrapper))?;
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&wrapper, executable).map_err(Error::io_at("change", &wrapper))?;
    Ok(bin)
}
