//! From a call to what becomes of it.
//!
//! Invariants: with no rules in force a call costs two loads and reaches the C library with the caller's own arguments.
//! A call that is passed on leaves the caller's error number to the C library. A failed call has had no effect.

use crate::control;
use crate::next;
use crate::plan::{Call, Decision, Fault, Kind, Subject};
use libc::{c_int, size_t};
use std::cell::OnceCell;
use std::ffi::CStr;

/// Bytes of direct I/O come in multiples of this.
const DIRECT_UNIT_BYTES: usize = 4096;

/// What to do with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// As it is.
    Pass,
    /// Not at all, with this error number.
    Fail(c_int),
    /// With this many bytes only.
    Shorten(size_t),
    /// Not at all, as if it had been done.
    Pretend,
}

struct Descriptor {
    fd: c_int,
    kind: OnceCell<Kind>,
    path: OnceCell<Vec<u8>>,
}

impl Descriptor {
    fn new(fd: c_int) -> Self {
        Self { fd, kind: OnceCell::new(), path: OnceCell::new() }
    }
}

impl Subject for Descriptor {
    fn kind(&self) -> Kind {
        *self.kind.get_or_init(|| match next::file_type(self.fd) {
            Some(libc::S_IFREG) => Kind::File,
            Some(libc::S_IFDIR) => Kind::Directory,
            Some(libc::S_IFSOCK) => match next::socket_option(self.fd, libc::SO_DOMAIN) {
                Some(libc::AF_INET | libc::AF_INET6)
                    if next::socket_option(self.fd, libc::SO_TYPE) == Some(libc::SOCK_STREAM) =>
                {
                    Kind::Tcp
                }
                Some(libc::AF_UNIX) => Kind::Unix,
                _ => Kind::Other,
            },
            _ => Kind::Other,
        })
    }

    fn path(&self) -> &[u8] {
        self.path.get_or_init(|| {
            let link = format!("/proc/self/fd/{}\0", self.fd);
            let mut buffer = [0; 1024];
            let link = CStr::from_bytes_until_nul(link.as_bytes()).unwrap_or_default();
            next::read_link(link, &mut buffer).to_vec()
        })
    }
}

struct Path<'a>(&'a [u8]);

impl Subject for Path<'_> {
    fn kind(&self) -> Kind {
        Kind::File
    }

    fn path(&self) -> &[u8] {
        self.0
    }
}

/// Keeps the caller's error number as it was.
struct ErrnoKept(c_int);

impl Drop for ErrnoKept {
    fn drop(&mut self) {
        next::set_errno(self.0);
    }
}

/// Decides about a call on a descriptor. `len_bytes`: what it would transfer, `None` when it must not be shortened.
pub fn on_descriptor(call: Call, fd: c_int, len_bytes: Option<size_t>) -> Action {
    let Some(plan) = control::plan() else { return Action::Pass };
    let _kept = ErrnoKept(next::errno());
    // A socket may be read and written like a file.
    let subject = Descriptor::new(fd);
    let call = match (call, subject.kind()) {
        (Call::Read, Kind::Tcp | Kind::Unix) => Call::Receive,
        (Call::Write, Kind::Tcp | Kind::Unix) => Call::Send,
        _ => call,
    };
    decide(&plan, call, &subject, len_bytes, || next::has_flag(fd, libc::O_DIRECT))
}

/// Decides about a call on a path.
///
/// # Safety
/// `path` is null or a NUL-terminated string.
pub unsafe fn on_path(call: Call, path: *const libc::c_char) -> Action {
    let Some(plan) = control::plan() else { return Action::Pass };
    if path.is_null() {
        return Action::Pass;
    }
    let _kept = ErrnoKept(next::errno());
    // SAFETY: not null, and NUL-terminated by the caller's contract.
    let path = unsafe { CStr::from_ptr(path) };
    decide(&plan, call, &Path(path.to_bytes()), None, || false)
}

fn decide(
    plan: &crate::plan::Plan,
    call: Call,
    subject: &impl Subject,
    len_bytes: Option<size_t>,
    is_direct: impl Fn() -> bool,
) -> Action {
    control::seen(call);
    let verdict = plan.decide(call, subject);
    if verdict.delay_us > 0 {
        control::count(call, Fault::Delay, subject.path());
        next::sleep_us(verdict.delay_us);
    }
    let Some(decision) = verdict.fault else { return Action::Pass };
    let action = action(call, decision, len_bytes, is_direct);
    if action != Action::Pass {
        control::count(call, decision.fault, subject.path());
    }
    action
}

fn action(call: Call, decision: Decision, len_bytes: Option<size_t>, is_direct: impl Fn() -> bool) -> Action {
    match decision.fault {
        Fault::Short => len_bytes.map_or(Action::Pass, |len| shorten(len, decision.random, is_direct())),
        Fault::Interrupted => Action::Fail(libc::EINTR),
        Fault::InputOutput => Action::Fail(libc::EIO),
        Fault::NoSpace => Action::Fail(libc::ENOSPC),
        Fault::Reset if call == Call::Connect => Action::Fail(libc::ECONNREFUSED),
        Fault::Reset => Action::Fail(libc::ECONNRESET),
        Fault::Swallow => Action::Pretend,
        Fault::Delay => Action::Pass,
    }
}

/// At least one byte (or unit of direct I/O), and not all.
fn shorten(len_bytes: size_t, random: u64, is_direct: bool) -> Action {
    let unit = if is_direct { DIRECT_UNIT_BYTES } else { 1 };
    let units = len_bytes.div_ceil(unit);
    if units < 2 {
        return Action::Pass;
    }
    // Half of them end very early, where headers are cut.
    let most = if random & 1 == 0 { units - 1 } else { (units - 1).min(16) };
    Action::Shorten((1 + (random >> 1) as usize % most) * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_call_does_something_and_not_all() {
        let mut random = 1u64;
        for len in 2..5000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            match shorten(len, random, false) {
                Action::Shorten(short) => assert!(short > 0 && short < len, "{short} of {len}"),
                other => panic!("{other:?} for {len} bytes"),
            }
        }
        assert_eq!(shorten(1, 5, false), Action::Pass);
        assert_eq!(shorten(0, 5, false), Action::Pass);
    }

    #[test]
    fn direct_transfers_are_cut_between_blocks_only() {
        assert_eq!(shorten(4096, 77, true), Action::Pass);
        for random in 0..100 {
            let Action::Shorten(short) = shorten(65536, random, true) else { panic!("not cut") };
            assert!(short % 4096 == 0 && short < 65536, "{short}");
        }
    }
}
