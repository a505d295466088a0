//! `libredoubt_faults.so`: a library for LD_PRELOAD that makes calls of the C library fail as the operating system may.
//!
//! It is for tests. Under a server it is stacked below the product's library
//! (`LD_PRELOAD=libredoubt.so:libredoubt_faults.so`): what that library passes on to the C library comes by here. It
//! can be preloaded into a storage node as well.
//!
//! Environment, read once when the library is loaded:
//!
//! | variable | meaning |
//! |---|---|
//! | `REDOUBT_FAULTS` | the control file (see [`control`]); without it nothing is ever injected |
//! | `REDOUBT_FAULTS_PROGRAM` | name of the program that is meant, as in `/proc/self/comm`; others are left alone |
//! | `REDOUBT_FAULTS_LOG` | a file that gets one line per fault: process, call, fault, path |
//!
//! * [`plan`]: the rules and their decisions; pure.
//! * [`control`]: the control file, through which rules are switched at run time and faults are counted.
//! * [`inject`]: from a call to what becomes of it.
//! * [`hooks`]: the calls themselves.
//! * [`next`]: the functions behind the hooks.
//!
//! `docs/dev/faults.md` lists the legal faults of each place and the properties that must hold then. A rule that no
//! POSIX system would obey (an interrupted `rename`) is refused. The one exception is `swallow`, a call that reports
//! success and does nothing: a planted lie, by which tests show that they can fail.
//!
//! The library does not cover system calls made without the C library (io_uring of the block log device, `pwritev2` of
//! untorn page writes, `fallocate` and `flock` of the node), and stores to mapped files.

mod control;
mod hooks;
mod inject;
mod next;
mod plan;
