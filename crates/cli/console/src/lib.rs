//! Parts that the `redoubt` command shares with its tools (`redoubt-bench`, `redoubt-drill`), which are separate programs.
//!
//! * [`output`]: lines on standard output and standard error.
//! * `manual`: pages in section 1, made from the definition of a command line (feature `manual`).
//! * [`installed`]: where libraries and tools are, relative to the running program.

pub mod installed;
#[cfg(feature = "manual")]
pub mod manual;
#[macro_use]
pub mod output;
