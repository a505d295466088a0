//! A page without charts: a report as JSON, and the same as Prometheus metrics.
//!
//! Invariant: a request reads the newest report only. Reports are made once per [`crate::SAMPLE_INTERVAL`], by one
//! thread. The lock is a leaf.

use crate::exposition::CONTENT_TYPE;
use crate::server::{File, JSON, Site};
use crate::{Running, StatusPage, StatusPageError};
use hyper::body::Bytes;
use redoubt_locks::IgnorePoison;
use std::sync::{Arc, Mutex};

/// One report in both forms.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// For programs: `/status.json`.
    pub json: String,
    /// For Prometheus: `/metrics`.
    pub metrics: String,
}

struct Newest(Mutex<Report>);

impl Newest {
    fn get(&self) -> Report {
        self.0.lock().ignore_poison().clone()
    }
}

impl Site for Newest {
    fn files(&self) -> &'static [File] {
        &[]
    }

    fn find(&self, path: &str) -> Option<(&'static str, Bytes)> {
        match path {
            "/status.json" => Some((JSON, Bytes::from(self.get().json))),
            "/metrics" => Some((CONTENT_TYPE, Bytes::from(self.get().metrics))),
            _ => None,
        }
    }

    fn paths(&self) -> &'static str {
        "/status.json and /metrics"
    }

    fn name_option(&self) -> &'static str {
        "--host-name"
    }
}

impl StatusPage {
    /// Serves reports until the result is dropped.
    ///
    /// # Errors
    /// [`StatusPageError::Start`].
    pub fn start_reports(
        self,
        mut make: impl FnMut() -> Report + Send + 'static,
    ) -> Result<Running, StatusPageError> {
        let newest = Arc::new(Newest(Mutex::new(make())));
        let renewed = Arc::clone(&newest);
        self.serve(newest, move || {
            let report = make();
            *renewed.0.lock().ignore_poison() = report;
        })
    }
}
