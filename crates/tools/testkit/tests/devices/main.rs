//! Experimental devices: raw block devices, persistent memory, recordings of block writes.

mod flash_trace;
mod local_log;
mod raw_device;
