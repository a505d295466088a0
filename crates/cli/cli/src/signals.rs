//! Signals that ask a process to end, which its main part waits for.

use std::mem::zeroed;
use std::ptr::null_mut;

/// Signals that are blocked in this process, and waited for.
#[derive(Clone, Copy)]
pub struct Signals(libc::sigset_t);

impl Signals {
    /// Blocks them. To be called before any thread is started, so that all threads inherit the mask.
    pub fn block(signals: &[libc::c_int]) -> Self {
        // SAFETY: sigset_t is plain data, initialised by sigemptyset before it is used; the old mask is not asked for.
        unsafe {
            let mut set = zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, *signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, null_mut());
            Self(set)
        }
    }

    /// Waits until one of them arrives, and returns it.
    pub fn wait(&self) -> libc::c_int {
        let mut signal = 0;
        // SAFETY: both pointers are to live, initialised values.
        unsafe { libc::sigwait(&raw const self.0, &raw mut signal) };
        signal
    }
}
