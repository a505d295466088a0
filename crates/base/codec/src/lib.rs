//! Fields, numbers and sizes read from untrusted bytes and text.
//!
//! * [`Reader`]: takes fields off the front of bytes.
//! * [`leb128`]: numbers of variable length.
//! * [`parse_size`]: a number of bytes as people write it.
//!
//! Invariant: no input makes anything here panic, read past the end of the input, or allocate.

pub mod leb128;
mod reader;
mod size;

pub use reader::{NumberError, Reader, Truncated};
pub use size::{SizeError, parse_size};
