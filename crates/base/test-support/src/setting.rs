//! Lengths and seeds of long tests, from the environment. For tests: what is misspelt ends them.

use std::ffi::OsString;

/// All there are; two of them are no numbers.
const NAMES: [&str; 14] = [
    "REDOUBT_SEED",
    "REDOUBT_SOAK_ROUNDS",
    "REDOUBT_CRASH_ROUNDS",
    "REDOUBT_FAULT_ROUNDS",
    "REDOUBT_FULL_DISK_MINUTES",
    "REDOUBT_FUZZ_MUTATIONS",
    "REDOUBT_FUZZ_SEED",
    "REDOUBT_ISOLATION_TRANSACTIONS",
    "REDOUBT_KILLED_IMPORTS",
    "REDOUBT_SIMULATION_SEED",
    "REDOUBT_SIMULATION_SEEDS",
    "REDOUBT_SIMULATION_SECONDS",
    "REDOUBT_SIMULATION_NOTES",
    "REDOUBT_SIMULATION_BUG",
];
/// Whatever else begins so is meant to be one.
const BEGINNINGS: [&str; 9] = [
    "REDOUBT_SEED",
    "REDOUBT_SOAK",
    "REDOUBT_CRASH",
    "REDOUBT_FAULT_",
    "REDOUBT_FULL_DISK",
    "REDOUBT_FUZZ",
    "REDOUBT_ISOLATION",
    "REDOUBT_KILLED",
    "REDOUBT_SIMULATION",
];

/// The number in the variable `name`, or `default` if it is not set.
///
/// # Panics
/// If it is not a number, if `name` is none of those there are, or if a variable is set that looks like one of them
/// and is none: a long run that quietly is a short one says nothing.
pub fn setting(name: &str, default: u64) -> u64 {
    from(std::env::vars_os(), name, default).unwrap_or_else(|why| panic!("{why}"))
}

fn from(
    variables: impl Iterator<Item = (OsString, OsString)>,
    name: &str,
    default: u64,
) -> Result<u64, String> {
    let mut found = default;
    for (variable, value) in variables {
        let variable = variable.to_string_lossy();
        if BEGINNINGS.iter().any(|beginning| variable.starts_with(beginning)) && !NAMES.contains(&&*variable)
        {
            return Err(format!("{variable} is not known; known are {}", NAMES.join(", ")));
        }
        if variable == name {
            let value = value.to_string_lossy();
            found = value.parse().map_err(|error| format!("{name} is {value:?}, not a number: {error}"))?;
        }
    }
    if NAMES.contains(&name) { Ok(found) } else { Err(format!("{name} is not a setting")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_misspelt_is_no_default() {
        let set = |variables: &[(&str, &str)], name: &str| {
            from(variables.iter().map(|(name, value)| (name.into(), value.into())), name, 7)
        };
        assert_eq!(set(&[("HOME", "/")], "REDOUBT_SEED"), Ok(7));
        assert_eq!(set(&[("REDOUBT_BIN", "x"), ("REDOUBT_SEED", "12")], "REDOUBT_SEED"), Ok(12));
        assert_eq!(set(&[("REDOUBT_SEED", "12")], "REDOUBT_SOAK_ROUNDS"), Ok(7));
        assert!(
            set(&[("REDOUBT_SOAK_ROUND", "12")], "REDOUBT_SEED").unwrap_err().contains("SOAK_ROUND is not")
        );
        assert!(set(&[("REDOUBT_SEED", "a dozen")], "REDOUBT_SEED").unwrap_err().contains("a dozen"));
        assert!(set(&[], "REDOUBT_ROUNDS").is_err());
    }
}
