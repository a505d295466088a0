//! Reports of an operation while it runs.

/// Receives the reports. The command shows them on a terminal; another program may log them.
pub trait Events {
    /// Something that a person should know.
    fn note(&self, text: &str);

    /// Long work begins.
    fn begin(&self, what: &'static str, total_bytes: u64) -> Box<dyn Progress>;
}

/// How far long work is.
pub trait Progress {
    /// More is done.
    fn add(&mut self, len_bytes: u64);

    /// All is done.
    fn finish(self: Box<Self>);
}

/// Ignores all reports.
pub struct Ignored;

impl Events for Ignored {
    fn note(&self, _text: &str) {}

    fn begin(&self, _what: &'static str, _total_bytes: u64) -> Box<dyn Progress> {
        Box::new(Self)
    }
}

impl Progress for Ignored {
    fn add(&mut self, _len_bytes: u64) {}

    fn finish(self: Box<Self>) {}
}

/// `1.5 MiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn byte_counts_are_readable() {
        assert_eq!(bytes(17), "17 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 30), "3.0 GiB");
    }
}
