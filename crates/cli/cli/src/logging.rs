//! The node's log on standard error: lines of text, or one JSON object per line.
//!
//! Invariant: with JSON every line is an object. So panics of all threads, which the standard library reports as text,
//! become the event `panic`, whatever `REDOUBT_LOG` selects, an error that ends the node becomes `node_failed`, and
//! nothing is written to standard output.
//!
//! A thread that logs does not wait for the reader of the log ([`queue`]).

mod queue;

use crate::args::LogFormat;
use crate::error::{CliError, Result};
use queue::Queue;
use redoubt_console::output;
use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::IsTerminal;
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::time::Duration;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// How long the end of the process waits for the last lines.
const LAST_LINES_TIMEOUT: Duration = Duration::from_secs(1);

static LOG: OnceLock<(LogFormat, Queue)> = OnceLock::new();

/// Starts logging. The lines that wait when the process ends are lost, unless [`finish`] is called.
///
/// # Errors
/// No thread can be started for the log.
pub fn start(format: LogFormat) -> Result<()> {
    let filter = filter(&std::env::var("REDOUBT_LOG").unwrap_or_default());
    // No reason to keep the volumes from their servers.
    let (filter, unusable) = filter.map_or_else(|why| (info(), Some(why)), |filter| (filter, None));
    let queue = Queue::start(std::io::stderr(), report_dropped);
    let queue = queue.map_err(|error| CliError::io("start thread", "log-writer", error))?;
    let (_, queue) = LOG.get_or_init(|| (format, queue));
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(format == LogFormat::Text && std::io::stderr().is_terminal())
        .with_writer(queue.clone())
        .with_target(false)
        .log_internal_errors(false);
    match format {
        LogFormat::Text => tracing_subscriber::registry().with(lines.with_filter(filter)).init(),
        LogFormat::Json => {
            // Fields of the event beside `timestamp` and `level`, as log collectors expect them; no span is ever open.
            let lines = lines.json().flatten_event(true).with_current_span(false).with_span_list(false);
            tracing_subscriber::registry().with(lines.with_filter(filter)).init();
            std::panic::set_hook(Box::new(report_panic));
        }
    }
    if let Some(why) = unusable {
        tracing::error!(event = "log_levels_unusable", "{why}; events of level info are logged");
    }
    Ok(())
}

fn info() -> Targets {
    Targets::new().with_default(LevelFilter::INFO)
}

/// Whether [`start`] has succeeded.
pub fn has_started() -> bool {
    LOG.get().is_some()
}

/// Waits for the last lines of the log, but not for long: its reader may never read them.
pub fn finish() {
    if let Some((_, queue)) = LOG.get() {
        queue.flush(LAST_LINES_TIMEOUT);
    }
}

/// A line on standard output, for which there is an event in the log, too. With JSON there is only the event.
pub fn announce(text: &str) {
    if !matches!(LOG.get(), Some((LogFormat::Json, _))) {
        output::announce(text);
    }
}

fn report_dropped(lines: u64) {
    tracing::error!(
        event = "log_lines_dropped",
        lines,
        "lines of the log were dropped: its reader was too slow"
    );
}

/// Which events are logged, for a value of `REDOUBT_LOG` such as `debug` or `info,redoubt_node=debug`: parts separated by
/// commas, each a level or a target with its level. Without a level of their own, targets have `info`. Events of this
/// module are always logged.
///
/// # Errors
/// The reason, for anything else. A misspelt level would otherwise be the name of a target, and the rest silent.
fn filter(levels: &str) -> std::result::Result<Targets, String> {
    let mut targets = info();
    for part in levels.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (target, level) =
            part.split_once('=').map_or((None, part), |(target, level)| (Some(target), level));
        let Ok(level) = level.parse::<LevelFilter>() else {
            return Err(format!(
                "REDOUBT_LOG={levels}: {level:?} is no level; levels are off, error, warn, info, debug and trace, also for a \
                 target, as in info,redoubt_node=debug"
            ));
        };
        targets = match target {
            Some(target) => targets.with_target(target, level),
            None => targets.with_default(level),
        };
    }
    Ok(targets.with_target(module_path!(), LevelFilter::ERROR))
}

/// Reports the error that ends the node.
pub fn report_failure(error: &CliError) {
    tracing::error!(event = "node_failed", %error, "the node ends with an error");
}

fn report_panic(info: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    tracing::error!(
        event = "panic",
        thread = thread.name().unwrap_or("unnamed"),
        location = info.location().map(ToString::to_string),
        reason = text_of(info.payload()),
        backtrace,
        "a thread panicked: a bug"
    );
}

fn text_of(payload: &dyn Any) -> &str {
    let owned = || payload.downcast_ref::<String>().map(String::as_str);
    payload.downcast_ref::<&str>().copied().or_else(owned).unwrap_or("no text")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// A thread with a log of its own panics. Other threads of this program keep their hook.
    fn panic_with_filter(levels: &str) -> String {
        const THREAD: &str = "volume-shop";
        let lines = Lines::default();
        let writer = lines.clone();
        let layer =
            tracing_subscriber::fmt::layer().with_writer(move || writer.clone()).json().flatten_event(true);
        let subscriber = tracing_subscriber::registry().with(layer.with_filter(filter(levels).unwrap()));
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name() == Some(THREAD) { report_panic(info) } else { before(info) }
        }));
        let panicking = move || tracing::subscriber::with_default(subscriber, || panic!("line 1\nline 2"));
        let spawned = std::thread::Builder::new().name(THREAD.to_owned()).spawn(panicking).unwrap();
        assert!(spawned.join().is_err());
        drop(std::panic::take_hook());
        String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn misspelt_level_is_refused_by_name() {
        for levels in ["warning", "verbose", "info,redoubt_node=all", "redoubt_node"] {
            let refused = filter(levels).unwrap_err();
            assert!(refused.contains(levels) && refused.contains("debug and trace"), "{refused}");
        }
    }

    #[test]
    fn level_of_a_target_leaves_the_others_at_info() {
        let levels = filter("redoubt_node=debug").unwrap();
        assert!(levels.would_enable("redoubt_node::volume", &tracing::Level::DEBUG));
        assert!(levels.would_enable("redoubt_readers", &tracing::Level::INFO));
        assert!(!levels.would_enable("redoubt_readers", &tracing::Level::DEBUG));
        let quiet = filter(" warn , redoubt_node=error").unwrap();
        assert!(!quiet.would_enable("redoubt_node", &tracing::Level::WARN));
        assert!(quiet.would_enable("redoubt_readers", &tracing::Level::WARN));
    }

    #[test]
    fn panic_is_one_line_of_json_with_any_filter() {
        for filter in ["info", "off", "redoubt_node=warn"] {
            let text = panic_with_filter(filter);
            assert_eq!(text.lines().count(), 1, "{filter}: {text}");
            let line: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(line["event"], "panic", "{line}");
            assert_eq!((&line["level"], &line["thread"]), (&"ERROR".into(), &"volume-shop".into()), "{line}");
            assert_eq!(line["reason"], "line 1\nline 2", "{line}");
            assert!(line["location"].as_str().unwrap().contains("logging.rs:"), "{line}");
        }
    }
}
