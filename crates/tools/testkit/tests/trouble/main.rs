//! Faults with real servers: failing calls and networks, full disks, kills under load, and replay verified against the
//! recovery of a stock server.

mod faults;
mod incidents;
mod isolation;
mod oracle;
