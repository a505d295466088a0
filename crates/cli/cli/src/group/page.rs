//! `redoubt group status --listen`: the page of a group.

use super::args::Login;
use super::look::Observer;
use crate::error::Result;
use crate::output::announce;
use crate::signals::Signals;
use redoubt_statuspage::{OptionNames, PageSettings, StatusPage};

/// Serves it until SIGTERM or SIGINT. That no server answers is shown on the page, and no reason to end.
///
/// # Errors
/// As [`Observer::new`]; [`crate::error::CliError::Usage`] if the address cannot be used.
pub fn serve(login: &Login, listen: &str, allow_remote: bool, host_names: &[String]) -> Result<()> {
    let settings = PageSettings {
        listen: listen.to_owned(),
        allow_remote,
        host_names: host_names.to_vec(),
        options: OptionNames { listen: "--listen", allow_remote: "--allow-remote" },
    };
    // Before any thread is started, so that all inherit the mask.
    let signals = Signals::block(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP]);
    let mut observer = Observer::new(login)?;
    let page = StatusPage::bind(&settings)?;
    let address = page.address();
    let _running =
        page.start_group(move || observer.look().map_err(|error| error.to_string()), super::metrics::render)?;
    announce(&format!("listening on http://{address}/"));
    signals.wait();
    Ok(())
}
