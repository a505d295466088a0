//! A server without a storage node, its redo log in persistent memory: the place of that log (`command`), and a test
//! whether stores into it are durable (`directory`). Both need the feature `experimental-devices`.

#[cfg(feature = "experimental-devices")]
pub mod command;
#[cfg(feature = "experimental-devices")]
pub mod directory;

/// Switches the library on in this mode.
pub const VARIABLE: &str = "REDOUBT_LOCAL_LOG";
