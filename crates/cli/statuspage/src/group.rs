//! The page of a group of servers: its members now, and over the last ten minutes.
//!
//! The group's data is JSON, which the page in `assets/group.js` reads; its type is defined elsewhere. Invariants: a
//! request asks no server; the history holds [`HISTORY`] moments at most. The lock is a leaf, held for moments only.

use crate::exposition::CONTENT_TYPE;
use crate::samples::HISTORY;
use crate::server::{File, HTML, JSON, SCRIPT, Site};
use crate::{Running, StatusPage, StatusPageError};
use hyper::body::Bytes;
use redoubt_locks::IgnorePoison;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

/// A group at a moment, or the reason why its state is unknown.
pub type Seen<T> = Result<T, String>;

#[derive(Serialize)]
struct Moment<'a, T> {
    at_unix_ms: u64,
    group: Option<&'a T>,
    error: Option<&'a str>,
}

/// Renders the newest moment as Prometheus metrics.
pub type Render<T> = fn(&Seen<T>) -> String;

/// The newest moments.
#[derive(Default)]
struct Moments(Mutex<Recent>);

#[derive(Default)]
struct Recent {
    /// Moments as JSON, the newest one last.
    json: VecDeque<String>,
    /// The newest one as Prometheus metrics.
    metrics: String,
}

impl Moments {
    fn add<T: Serialize>(&self, seen: &Seen<T>, render: Render<T>) {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let moment = Moment {
            at_unix_ms: since_epoch.as_millis() as u64,
            group: seen.as_ref().ok(),
            error: seen.as_ref().err().map(String::as_str),
        };
        // Numbers, texts and maps with text keys can always be written.
        let text = serde_json::to_string(&moment).unwrap_or_default();
        let metrics = render(seen);
        let mut recent = self.lock();
        while recent.json.len() >= HISTORY {
            recent.json.pop_front();
        }
        recent.json.push_back(text);
        recent.metrics = metrics;
    }

    fn lock(&self) -> MutexGuard<'_, Recent> {
        self.0.lock().ignore_poison()
    }

    fn newest(&self) -> String {
        self.lock().json.back().cloned().unwrap_or_default()
    }

    fn all(&self) -> String {
        let recent = self.lock();
        let all: Vec<&str> = recent.json.iter().map(String::as_str).collect();
        format!("[{}]", all.join(","))
    }
}

impl Site for Moments {
    fn files(&self) -> &'static [File] {
        &[
            ("/", HTML, include_bytes!("../assets/group.html")),
            ("/group.js", SCRIPT, include_bytes!("../assets/group.js")),
        ]
    }

    fn find(&self, path: &str) -> Option<(&'static str, Bytes)> {
        match path {
            "/live.json" => Some((JSON, Bytes::from(self.newest()))),
            "/history.json" => Some((JSON, Bytes::from(self.all()))),
            "/metrics" => Some((CONTENT_TYPE, Bytes::from(self.lock().metrics.clone()))),
            _ => None,
        }
    }

    fn paths(&self) -> &'static str {
        "/, /live.json, /history.json and /metrics"
    }

    fn name_option(&self) -> &'static str {
        "--host-name"
    }
}

impl StatusPage {
    /// Serves the page of a group until the result is dropped; `look` is asked again and again.
    ///
    /// # Errors
    /// [`StatusPageError::Start`].
    pub fn start_group<T: Serialize + 'static>(
        self,
        mut look: impl FnMut() -> Seen<T> + Send + 'static,
        render: Render<T>,
    ) -> Result<Running, StatusPageError> {
        let moments = Arc::new(Moments::default());
        moments.add(&look(), render);
        let added = Arc::clone(&moments);
        self.serve(moments, move || added.add(&look(), render))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_is_bounded_and_ends_with_the_newest() {
        let moments = Moments::default();
        let render = |seen: &Seen<usize>| seen.as_ref().map_or_else(|_| "none".to_owned(), usize::to_string);
        for number in 0..HISTORY + 3 {
            moments.add(&Ok(number), render);
        }
        moments.add(&Err("nobody \"answers\"".to_owned()), render);
        assert_eq!(moments.lock().metrics, "none");
        let all: serde_json::Value = serde_json::from_str(&moments.all()).unwrap();
        let all = all.as_array().unwrap();
        assert_eq!(all.len(), HISTORY);
        assert_eq!(all[HISTORY - 2]["group"], HISTORY + 2);
        let newest: serde_json::Value = serde_json::from_str(&moments.newest()).unwrap();
        assert_eq!(newest, all[HISTORY - 1]);
        assert_eq!(
            (&newest["group"], newest["error"].as_str()),
            (&serde_json::Value::Null, Some("nobody \"answers\""))
        );
    }
}
