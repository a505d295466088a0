//! The node's log on standard error: lines of text, or one JSON object per line.
//!
//! Invariant: with JSON every line is an object. So panics of all threads, which the standard library reports as text,
//! become the event `panic`, whatever `REDOUBT_LOG` selects, and an error that ends the node becomes `node_failed`.

use crate::args::LogFormat;
use crate::error::CliError;
use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::IsTerminal;
use std::panic::PanicHookInfo;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Starts logging.
pub fn start(format: LogFormat) {
    let levels = std::env::var("REDOUBT_LOG").unwrap_or_default();
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(format == LogFormat::Text && std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .with_target(false)
        // Without this, a failed write to standard error would be reported on standard error, and panic.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => tracing_subscriber::registry().with(lines.with_filter(filter(&levels))).init(),
        LogFormat::Json => {
            // Fields of the event beside `timestamp` and `level`, as log collectors expect them; no span is ever open.
            let lines = lines.json().flatten_event(true).with_current_span(false).with_span_list(false);
            tracing_subscriber::registry().with(lines.with_filter(filter(&levels))).init();
            std::panic::set_hook(Box::new(report_panic));
        }
    }
}

/// Which events are logged, for a value of `REDOUBT_LOG` such as `debug` or `info,redoubt_node=debug`. With an empty value
/// or one that cannot be read, those of level `info`. Events of this module are always logged.
fn filter(levels: &str) -> Targets {
    let info = || Targets::new().with_default(LevelFilter::INFO);
    let levels = if levels.is_empty() { info() } else { levels.parse().unwrap_or_else(|_| info()) };
    levels.with_target(module_path!(), LevelFilter::ERROR)
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
        let subscriber = tracing_subscriber::registry().with(layer.with_filter(filter(levels)));
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
