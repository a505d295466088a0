//! Faults on purpose: failing calls, bad networks and kills, under real servers and nodes, and the promises under them.
//!
//! * [`faults`]: calls of the C library fail, by rules (`libredoubt_faults.so`). [`proxy`]: a TCP connection is treated as
//!   a bad network does it.
//! * [`bad_cable`]: the same for single frames between two hosts. [`packet_socket`]: frames as they are.
//! * [`fault_rounds`]: rounds of the ledger of acknowledged commits under all of these, and kills.
//! * [`damage_rounds`]: rounds of damage to the files of a volume.
//! * [`isolation`]: histories of list-append transactions, the anomalies they show, and a comparison of a stock server
//!   with Redoubt under kills and a bad network.
//!
//! Invariant: faults follow from a seed, so that a failure names the seed that shows it again, mostly.
//!
//! `redoubt-drill` breaks groups of servers; `redoubt-faults` is the library that [`faults`] controls.

pub mod bad_cable;
pub mod damage_rounds;
pub mod fault_rounds;
pub mod faults;
pub mod isolation;
pub mod packet_socket;
pub mod proxy;
