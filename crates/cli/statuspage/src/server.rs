//! The HTTP server: one thread of low priority for all connections.
//!
//! Bounds, against clients that are slow, many or hostile: [`MAX_CONNECTIONS`] at a time. A further one ends the oldest,
//! so clients that only hold connections open lock no probe out. Other bounds: a request's head within [`HEAD_TIMEOUT`]
//! and [`HEAD_LIMIT_BYTES`], a connection's life [`CONNECTION_LIFE`] and then [`LAST_ANSWER`] for an answer that is under
//! way. Bodies of requests are never read.

use crate::guard;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// Connections served at a time.
pub const MAX_CONNECTIONS: usize = 32;
/// A request's head must have come by then; also ends a connection that asks nothing.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest head of a request.
pub const HEAD_LIMIT_BYTES: usize = 16 << 10;
/// Maximum number of headers of a request.
const MAX_HEADERS: usize = 64;
/// A connection takes no new request after this time.
pub const CONNECTION_LIFE: Duration = Duration::from_secs(60);
/// Time limit for a request that is in progress at that time.
const LAST_ANSWER: Duration = Duration::from_secs(5);
/// After an error of accept, most likely too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Nice value of the thread, from 0 to 19.
const NICENESS: i32 = 10;

pub const HTML: &str = "text/html; charset=utf-8";
pub const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
pub const JSON: &str = "application/json";
const ICON: &str = "image/svg+xml";

/// A file of a page: path, media type, contents.
pub type File = (&'static str, &'static str, &'static [u8]);

/// Files of every page.
const FILES: [File; 6] = [
    ("/common.js", SCRIPT, include_bytes!("../assets/common.js")),
    ("/page.css", STYLE, include_bytes!("../assets/page.css")),
    ("/icon.svg", ICON, include_bytes!("../assets/icon.svg")),
    ("/uplot.js", SCRIPT, include_bytes!("../assets/vendor/uplot/uPlot.iife.min.js")),
    ("/uplot.css", STYLE, include_bytes!("../assets/vendor/uplot/uPlot.min.css")),
    ("/uplot-license.txt", TEXT, include_bytes!("../assets/vendor/uplot/LICENSE")),
];

/// Nothing from elsewhere, nothing inline, nowhere to send anything, and no embedding in frames.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Ends the server when dropped.
pub struct Handle {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Content of a server.
pub trait Site: Send + Sync + 'static {
    /// Files that do not change.
    fn files(&self) -> &'static [File];

    /// Media type and contents of the other paths.
    fn find(&self, path: &str) -> Option<(&'static str, Bytes)>;

    /// Result of the health check at this path; `None` if the path is not a health check.
    fn check(&self, _path: &str) -> Option<Health> {
        None
    }

    /// List of the existing paths, for a 404 response.
    fn paths(&self) -> &'static str;

    /// The option that gives this page a name.
    fn name_option(&self) -> &'static str;
}

/// Result of a health check, for orchestrators and load balancers: status 200, or 503 with the reason as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// The check passes.
    Passes,
    /// The check fails, for this reason.
    Fails(String),
}

/// A site, and the names under which it may be read.
struct Served {
    names: Vec<String>,
    site: Arc<dyn Site>,
}

/// Serves `listener`, which does not block.
///
/// # Errors
/// If the thread cannot be started.
pub fn start(listener: TcpListener, names: Vec<String>, site: Arc<dyn Site>) -> io::Result<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let (stop, stopped) = oneshot::channel();
    let site = Arc::new(Served { names, site });
    let thread = std::thread::Builder::new().name("status-page".to_owned()).spawn(move || {
        // Applies to this thread only. If it fails, the page has the same priority as commits, which is harmless.
        let _ = rustix::process::nice(NICENESS);
        runtime.block_on(async {
            tokio::select! {
                result = accept(listener, site) => {
                    if let Err(error) = result {
                        tracing::error!(event = "status_page_failed", %error, "the status page is no longer served");
                    }
                }
                _ = stopped => {}
            }
        });
        // Not for connections that are still open.
        runtime.shutdown_background();
    })?;
    Ok(Handle { stop: Some(stop), thread: Some(thread) })
}

async fn accept(listener: TcpListener, site: Arc<Served>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut open: VecDeque<AbortHandle> = VecDeque::with_capacity(MAX_CONNECTIONS);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(event = "status_page_accept_failed", %error, "the status page cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= MAX_CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        open.push_back(tokio::spawn(serve(stream, Arc::clone(&site))).abort_handle());
        // A request that has come already is answered before the next connection can end this one.
        tokio::task::yield_now().await;
    }
}

/// Serves a connection. An error concerns its client only.
async fn serve(stream: TcpStream, site: Arc<Served>) {
    let service = service_fn(move |request| {
        let response = respond(&request, &site);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_LIMIT_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    if tokio::time::timeout(CONNECTION_LIFE, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(LAST_ANSWER, connection).await;
    }
}

fn respond(request: &Request<Incoming>, served: &Served) -> Response<Full<Bytes>> {
    let refused = |status, why: String| (status, TEXT, Bytes::from(why));
    let site = &served.site;
    let path = request.uri().path();
    // Probes come under any name, and without one. The reason is for allowed names only, because it names volumes,
    // and any other name may be that of a page in a browser.
    let health = site.check(path);
    let is_allowed = host_is_allowed(request.headers(), &served.names);
    let (status, media_type, body) = if health.is_none() && !is_allowed {
        refused(
            StatusCode::MISDIRECTED_REQUEST,
            format!(
                "This page is not served under that name. Use its address, or give it the name with {}.\n",
                site.name_option()
            ),
        )
    } else if !matches!(*request.method(), Method::GET | Method::HEAD) {
        refused(
            StatusCode::METHOD_NOT_ALLOWED,
            "Only GET and HEAD: nothing can be changed here.\n".to_owned(),
        )
    } else {
        match (health, find(path, site.as_ref())) {
            (Some(Health::Passes), _) => (StatusCode::OK, TEXT, Bytes::from_static(b"ok\n")),
            (Some(Health::Fails(_)), _) if !is_allowed => {
                refused(StatusCode::SERVICE_UNAVAILABLE, "not ready\n".to_owned())
            }
            (Some(Health::Fails(why)), _) => refused(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
            (None, Some((media_type, body))) => (StatusCode::OK, media_type, body),
            (None, None) => {
                refused(StatusCode::NOT_FOUND, format!("No such page. There are {}.\n", site.paths()))
            }
        }
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// True if there is exactly one Host header, with an allowed name.
fn host_is_allowed(headers: &HeaderMap, names: &[String]) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    host.is_some_and(|host| guard::is_allowed(host, names)) && hosts.next().is_none()
}

fn find(path: &str, site: &dyn Site) -> Option<(&'static str, Bytes)> {
    let mut files = FILES.iter().chain(site.files());
    match files.find(|(name, ..)| *name == path) {
        Some((_, media_type, contents)) => Some((media_type, Bytes::from_static(contents))),
        None => site.find(path),
    }
}
