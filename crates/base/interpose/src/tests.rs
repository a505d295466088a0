use super::*;
use std::io::Read;
use std::os::fd::AsRawFd;

next_definitions! {
    process_id c"getpid" () -> c_int;
    absolute c"abs" (value: c_int) -> c_int;
}

optional_next_definitions! {
    optional_process_id c"getpid" () -> c_int;
    unknown c"redoubt_no_such_function" (value: c_int) -> c_int;
}

#[test]
fn next_definition_calls_the_c_library() {
    // SAFETY: neither function has a requirement.
    let (id, positive) = unsafe { (process_id(), absolute(-7)) };
    assert_eq!((id, positive), (std::process::id() as c_int, 7));
}

#[test]
fn optional_definition_is_none_when_missing() {
    // SAFETY: the process has no function of the second name, so it is not called.
    let (id, nothing) = unsafe { (optional_process_id(), unknown(1)) };
    assert_eq!((id, nothing), (Some(std::process::id() as c_int), None));
}

#[test]
fn address_is_kept_after_first_look_up() {
    let next = Next::new();
    let address = next.find(c"getpid").unwrap();
    assert_eq!(next.0.load(Ordering::Acquire), address.as_ptr());
    // A kept address is not looked up again, whatever the symbol.
    assert_eq!(next.find(c"redoubt_no_such_function"), Some(address));
}

#[test]
fn missing_symbol_is_named_in_the_message() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    report_missing(writer.as_raw_fd(), c"some_function");
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "[redoubt] the C library has no function some_function; this system is not supported\n");
}

#[test]
fn errno_is_the_threads_own() {
    set_errno(libc::EBADF);
    std::thread::spawn(|| set_errno(libc::EINTR)).join().unwrap();
    assert_eq!(errno(), libc::EBADF);
}
