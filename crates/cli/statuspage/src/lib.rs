//! State for people and monitoring systems, over HTTP: a node's status page, the same as JSON, and Prometheus metrics;
//! and a page of a group of servers ([`group`]).
//!
//! ```text
//! node -- sampler thread, once per second --> samples (newest, and 10 minutes of history)
//!                                                |
//! browser, Prometheus -- server thread ----------+
//! ```
//!
//! Invariants:
//! * A request never touches the node: it is answered from the newest sample, which is rendered once. One thread asks
//!   the node once per second, whatever the number of requests and clients.
//! * Nothing can be changed: only GET and HEAD are answered, and no path does anything.
//! * All connections are served by one thread of low priority, and are bounded in number, header size and lifetime
//!   ([`server`]).
//! * A request whose Host is not a name of this page is refused, so that a foreign web site cannot have a browser
//!   read it under its own name (DNS rebinding; [`guard`]).

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod exposition;
pub mod group;
pub mod guard;
pub mod health;
pub mod metrics;
pub mod report;
mod samples;
mod server;

use redoubt_wire::control::NodeStatus;
use samples::Samples;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between two samples.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Source of the state.
pub type Source = Arc<dyn Fn() -> NodeStatus + Send + Sync>;

/// Reason why there is no status page.
#[derive(Debug, thiserror::Error)]
pub enum StatusPageError {
    /// The address cannot be used.
    #[error("cannot serve the status page on {address}: {source}; choose another address with {option}")]
    Listen {
        /// The address.
        address: String,
        /// The option that names it.
        option: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// Other hosts could read it.
    #[error(
        "refusing to serve the status page on {0}: every host that reaches it could read names, paths and \
         figures, since it has no TLS and no passwords; listen on 127.0.0.1, or, if that is intended, add {1}"
    )]
    Exposed(SocketAddr, &'static str),
    /// A thread cannot be started.
    #[error("cannot start the status page: {0}")]
    Start(std::io::Error),
}

/// Names of the options for the address and for remote access, for messages.
#[derive(Clone, Copy, Debug)]
pub struct OptionNames {
    /// The address.
    pub listen: &'static str,
    /// Others may read it.
    pub allow_remote: &'static str,
}

impl Default for OptionNames {
    /// Options of a node.
    fn default() -> Self {
        Self { listen: "--status-listen", allow_remote: "--status-allow-remote" }
    }
}

/// Settings by the operator.
#[derive(Clone, Debug, Default)]
pub struct PageSettings {
    /// Address to listen on, `host:port`; port 0 takes a free one.
    pub listen: String,
    /// Other hosts may read it.
    pub allow_remote: bool,
    /// Names, besides `localhost` and addresses, under which browsers reach it.
    pub host_names: Vec<String>,
    /// Names of the options, for messages.
    pub options: OptionNames,
}

/// A status page that is not served yet.
#[derive(Debug)]
pub struct StatusPage {
    listener: TcpListener,
    address: SocketAddr,
    host_names: Vec<String>,
}

impl StatusPage {
    /// Takes the address.
    ///
    /// # Errors
    /// [`StatusPageError::Listen`]; [`StatusPageError::Exposed`] for an address that other hosts reach, unless that
    /// is allowed.
    pub fn bind(settings: &PageSettings) -> Result<Self, StatusPageError> {
        let option = settings.options.listen;
        let failed = |source| StatusPageError::Listen { address: settings.listen.clone(), option, source };
        let listener = TcpListener::bind(&settings.listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        if !address.ip().to_canonical().is_loopback() && !settings.allow_remote {
            return Err(StatusPageError::Exposed(address, settings.options.allow_remote));
        }
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self { listener, address, host_names: settings.host_names.clone() })
    }

    /// Address of the page.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves it until the result is dropped.
    ///
    /// # Errors
    /// [`StatusPageError::Start`].
    pub fn start(self, source: Source) -> Result<Running, StatusPageError> {
        let samples = Arc::new(Samples::new(&source()));
        let sampled = Arc::clone(&samples);
        self.serve(samples, move || sampled.add(&source()))
    }

    /// Serves a site; `look` is called every [`SAMPLE_INTERVAL`].
    fn serve(
        self,
        site: Arc<dyn server::Site>,
        mut look: impl FnMut() + Send + 'static,
    ) -> Result<Running, StatusPageError> {
        let (stop, stopped) = mpsc::channel::<()>();
        let sampler = std::thread::Builder::new()
            .name("status-sampler".to_owned())
            .spawn(move || {
                while stopped.recv_timeout(SAMPLE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    look();
                }
            })
            .map_err(StatusPageError::Start)?;
        let server = server::start(self.listener, self.host_names, site).map_err(StatusPageError::Start)?;
        Ok(Running { stop: Some(stop), sampler: Some(sampler), _server: server })
    }
}

/// A status page that is served.
pub struct Running {
    stop: Option<Sender<()>>,
    sampler: Option<JoinHandle<()>>,
    _server: server::Handle,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(sampler) = self.sampler.take() {
            let _ = sampler.join();
        }
    }
}
