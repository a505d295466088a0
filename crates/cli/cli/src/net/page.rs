//! `redoubt net status --listen`: figures of the network library for monitoring systems.
//!
//! Servers may start and end meanwhile. A host without one has the metric `redoubt_net_servers` at 0, and no error.

use super::args::NetStatusArguments;
use super::{NetStatus, metrics, servers};
use crate::error::Result;
use crate::output::announce;
use crate::signals::Signals;
use redoubt_statuspage::report::Report;
use redoubt_statuspage::{OptionNames, PageSettings, StatusPage};

/// Serves the figures until SIGTERM or SIGINT.
///
/// # Errors
/// [`crate::error::CliError::Usage`] if the address cannot be used.
pub fn serve(arguments: &NetStatusArguments) -> Result<()> {
    let settings = PageSettings {
        listen: arguments.listen.clone().unwrap_or_default(),
        allow_remote: arguments.allow_remote,
        host_names: arguments.host_name.clone(),
        options: OptionNames { listen: "--listen", allow_remote: "--allow-remote" },
    };
    // Before any thread is started, so that all inherit the mask.
    let signals = Signals::block(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP]);
    let page = StatusPage::bind(&settings)?;
    let address = page.address();
    let selection = arguments.selection.clone();
    let _running = page.start_reports(move || {
        let (found, hidden) = servers::readable(&selection);
        let status = |server: &servers::NetServer| Some(NetStatus::new(server, &server.snapshot().ok()?));
        let all: Vec<NetStatus> = found.iter().filter_map(status).collect();
        let unreadable = hidden + found.len() - all.len();
        let metrics = metrics::render(&all, unreadable);
        Report { json: serde_json::to_string(&all).unwrap_or_default(), metrics }
    })?;
    announce(&format!("listening on http://{address}/metrics"));
    signals.wait();
    Ok(())
}
