//! `redoubt node`.

#[cfg_attr(not(feature = "readers"), path = "node/no_nfs.rs")]
mod nfs;
#[cfg_attr(not(feature = "status-page"), path = "node/no_status_page.rs")]
mod status_page;

use crate::args::{LogArguments, LogFormat, NodeArguments, PageArguments};
use crate::error::{CliError, Result};
use crate::logging;
use crate::signals::Signals;
use redoubt_client::attach::datadir::ids_of;
use redoubt_client::experimental;
use redoubt_logdev::DeviceKind;
use redoubt_node::at_rest::{AtRest, VolumeKeys};
use redoubt_node::memory::MemoryBudget;
use redoubt_node::{LogOptions, Node, NodeError, NodeOptions, PageOptions};
use redoubt_pagestore::PageProtection;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MIN_BATCH_LEN_BYTES: u64 = 1 << 20;
/// Interval between reports of a pending stop.
const STOP_REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Runs a node until a signal ends it.
///
/// # Errors
/// If directory or address cannot be used.
pub fn run(arguments: &NodeArguments) -> Result<()> {
    // Before any thread is started, so that all inherit the mask.
    let signals = Signals::block(&[libc::SIGTERM, libc::SIGINT]);
    logging::start(arguments.log_format)?;
    let served = serve(arguments, signals);
    if arguments.log_format == LogFormat::Json {
        served.as_ref().err().into_iter().for_each(logging::report_failure);
    }
    logging::finish();
    served
}

fn serve(arguments: &NodeArguments, signals: Signals) -> Result<()> {
    let page = status_page::bind(&arguments.status)?;
    let nfs = nfs::bind(&arguments.nfs)?;
    let mut options = options(arguments)?;
    options.status_page = page.as_ref().map(status_page::StatusPage::address);
    let node = Node::open(options)?;
    let page = page.map(|page| status_page::start(page, &node)).transpose()?;
    let nfs = Arc::new(nfs.map(|nfs| nfs::start(nfs, &node)).transpose()?);
    let listening = format!("listening on {}", node.address());
    tracing::info!(event = "node_listening", address = node.address().to_string(), "{listening}");
    logging::announce(&listening);
    if let Some(name) = node.local_name() {
        tracing::info!(
            event = "local_socket_listening",
            "local socket @{name} for servers of root, of this user and of {:?}",
            arguments.local_users
        );
    }
    crate::notify::ready(&listening);
    let stopped_nfs = Arc::clone(&nfs);
    let (stopper, stop_timeout) = (Arc::clone(&node), Duration::from_secs(arguments.stop_timeout));
    spawn("signals", move || {
        let signal = signals.wait();
        // Until the process has ended: also what the main thread does after it no longer serves takes part.
        let watched = Arc::clone(&stopper);
        if let Err(error) = spawn("stop-watch", move || watch_stop(&watched, stop_timeout)) {
            tracing::warn!(event = "stop_watch_failed", %error, "the node has no timeout for stopping");
        }
        tracing::info!(event = "stopping", signal, "stopping");
        // First: the process may end as soon as it has stopped.
        crate::notify::stopping();
        if let Some(nfs) = &*stopped_nfs {
            nfs.stop();
        }
        stopper.stop();
    })?;
    node.serve();
    node.stop();
    drop((nfs, page));
    node.remove_keys();
    Ok(())
}

fn spawn(name: &'static str, body: impl FnOnce() + Send + 'static) -> Result<()> {
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    spawned.map(drop).map_err(|error| CliError::io("start thread", name, error))
}

/// Says what stopping waits for, and ends the process when it has waited for `timeout`.
fn watch_stop(node: &Node, timeout: Duration) {
    let start = Instant::now();
    loop {
        let left = timeout.saturating_sub(start.elapsed());
        std::thread::sleep(left.min(STOP_REPORT_INTERVAL));
        let waits_for = node.stop_waits_for().unwrap_or_else(|| "the status page".to_owned());
        if start.elapsed() >= timeout {
            let seconds = timeout.as_secs();
            tracing::error!(
                event = "stop_timeout",
                "stopping took longer than {seconds} s (--stop-timeout) and still waits for {waits_for}; the node \
                 exits now: acknowledged data is durable, and the next start recovers it"
            );
            logging::finish();
            std::process::exit(1);
        }
        tracing::warn!(event = "stop_waiting", "stopping waits for {waits_for}");
    }
}

fn options(arguments: &NodeArguments) -> Result<NodeOptions> {
    let mut options = NodeOptions::new(arguments.data.clone(), arguments.listen.clone());
    options.local_users = arguments.local_socket.then(|| known_users(&arguments.local_users));
    options.tls = arguments.tls.server()?;
    options.allow_plain_text = arguments.allow_plain_text;
    if let Some(directory) = &arguments.volume_keys {
        options.at_rest = Arc::new(AtRest::new(VolumeKeys::open(directory).map_err(NodeError::from)?));
    }
    options.ring_len_bytes = arguments.ring;
    if let Some(limit_bytes) = arguments.memory {
        options.memory = Arc::new(MemoryBudget::new(limit_bytes));
    }
    options.export_rate_bytes_per_second = arguments.export_rate;
    let days = u64::from(arguments.scrub_days);
    options.scrub.period = (days > 0).then(|| Duration::from_secs(days * 24 * 3600));
    options.scrub.rate_bytes_per_second = arguments.scrub_rate;
    options.batch_len_bytes = arguments.batch.unwrap_or(arguments.ring / 4);
    options.apply_interval = Duration::from_secs(arguments.apply_interval);
    options.pages = page_options(&arguments.pages)?;
    options.log = log_options(&arguments.log)?;
    if let Some(workers) = arguments.apply_workers {
        options.apply_workers = usize::from(workers);
    }
    if options.batch_len_bytes < MIN_BATCH_LEN_BYTES || options.batch_len_bytes > options.ring_len_bytes / 2 {
        return Err(CliError::Usage("--batch must be 1MiB or more, and at most half of --ring".to_owned()));
    }
    make_private_directory(&arguments.data)?;
    Ok(options)
}

/// Numbers of these users. A user that is not there has no servers.
fn known_users(names: &[String]) -> Vec<u32> {
    let ids = |name: &String| ids_of(Some(name)).ok().flatten();
    names.iter().filter_map(ids).map(|(uid, _)| uid).collect()
}

fn log_options(arguments: &LogArguments) -> Result<LogOptions> {
    let device = match arguments.log_device.as_str() {
        "pmem" => Some(DeviceKind::Pmem),
        "block" => Some(DeviceKind::Block),
        "file" => Some(DeviceKind::File),
        _ => None,
    };
    if arguments.pretend_pmem && device.is_some_and(|kind| kind != DeviceKind::Pmem) {
        return Err(CliError::Usage(format!(
            "--pretend-pmem is for --log-device pmem or auto, not for {}",
            arguments.log_device
        )));
    }
    if !experimental::IS_BUILT_IN && (arguments.pretend_pmem || device == Some(DeviceKind::Pmem)) {
        let option = if arguments.pretend_pmem { "--pretend-pmem" } else { "--log-device pmem" };
        return Err(experimental::refused(option).into());
    }
    make_place(arguments.log_path.as_deref())?;
    Ok(LogOptions {
        device,
        place: arguments.log_path.clone(),
        write_unit_bytes: arguments.log_write_unit.map(usize::from),
        max_in_flight: usize::from(arguments.log_in_flight),
        pretend_pmem: arguments.pretend_pmem,
        ..LogOptions::default()
    })
}

fn page_options(arguments: &PageArguments) -> Result<PageOptions> {
    let protection: Option<PageProtection> = match arguments.page_protection.as_str() {
        "auto" => None,
        name => Some(name.parse().map_err(|error| CliError::Usage(format!("--page-protection: {error}")))?),
    };
    if arguments.pretend_atomic && protection.is_some_and(|mode| mode != PageProtection::Atomic) {
        return Err(CliError::Usage(format!(
            "--pretend-atomic is for --page-protection atomic or auto, not for {}",
            arguments.page_protection
        )));
    }
    make_place(arguments.journal_path.as_deref())?;
    make_place(arguments.pages_path.as_deref())?;
    Ok(PageOptions {
        protection,
        journal_len_bytes: arguments.journal,
        journal_place: arguments.journal_path.clone(),
        pages_place: arguments.pages_path.clone(),
        pretend_atomic: arguments.pretend_atomic,
    })
}

/// A place is a block device, or a directory, which is made if it is missing.
fn make_place(path: Option<&Path>) -> Result<()> {
    match path {
        Some(path) if !redoubt_node::place::is_block_device(path) => make_private_directory(path),
        Some(path) if !experimental::IS_BUILT_IN => {
            Err(experimental::refused(&format!("the raw block device {}", path.display())).into())
        }
        _ => Ok(()),
    }
}

/// Makes a directory that only its owner can read: it will hold whole databases.
fn make_private_directory(path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(crate::show::make_directory(path)?);
    }
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| CliError::io("create", path, error))
}
