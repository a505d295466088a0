//! A number of bytes as people write it: `4096`, `64MiB`, `1G`.

/// Text that is no size.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SizeError {
    /// No unit of this name.
    #[error("unit {0:?} is not known; use KiB, MiB or GiB")]
    UnknownUnit(String),
    /// No number before the unit.
    #[error("{0:?} is not a whole number")]
    NotANumber(String),
    /// 2^64 bytes or more.
    #[error("{0} is too large")]
    TooLarge(String),
}

/// Parses a whole number of bytes. A unit may follow it, in any case: `B`, `K` or `KiB`, `M` or `MiB`, `G` or `GiB`;
/// 1K is 1024 bytes.
///
/// # Errors
/// [`SizeError`]
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..).unwrap_or_default().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        other => return Err(SizeError::UnknownUnit(other.to_owned())),
    };
    let digits = digits.trim();
    let number: u64 = digits.parse().map_err(|_| SizeError::NotANumber(digits.to_owned()))?;
    number.checked_mul(unit).ok_or_else(|| SizeError::TooLarge(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_and_without_unit() {
        for (text, size) in [
            ("0", 0),
            ("4096", 4096),
            ("4096b", 4096),
            ("7k", 7 << 10),
            ("64MiB", 64 << 20),
            ("64 M", 64 << 20),
            ("2g", 2 << 30),
            ("1GiB", 1 << 30),
        ] {
            assert_eq!(parse_size(text), Ok(size), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_size_is_refused() {
        for (text, error) in [
            ("", SizeError::NotANumber(String::new())),
            ("M", SizeError::NotANumber(String::new())),
            ("-1", SizeError::NotANumber("-1".to_owned())),
            ("1.5G", SizeError::NotANumber("1.5".to_owned())),
            ("12 parsecs", SizeError::UnknownUnit("parsecs".to_owned())),
            ("1é", SizeError::NotANumber("1é".to_owned())),
            ("99999999999GiB", SizeError::TooLarge("99999999999GiB".to_owned())),
        ] {
            assert_eq!(parse_size(text), Err(error), "{text}");
        }
    }
}
