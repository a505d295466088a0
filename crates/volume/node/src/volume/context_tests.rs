//! Waits of a volume, and their ends.

use super::*;
use redoubt_sync::thread;

fn context() -> (tempfile::TempDir, Arc<Context>) {
    let directory = tempfile::tempdir().unwrap();
    let own = Folder::open(directory.path()).unwrap();
    let options = NodeOptions::new(directory.path().to_owned(), "127.0.0.1:0".to_owned());
    (directory, Arc::new(Context::new("v", own, &options)))
}

#[test]
fn it_goes_on_when_the_last_of_those_who_wait_does() {
    let (_directory, context) = context();
    assert_eq!(context.last_wait(), LastWait::None);
    context.begin_wait(Waiter::Room, "the log buffer is full");
    assert_eq!(context.blocked(), None, "a full buffer ends by itself");
    context.begin_wait(Waiter::Pages, "no space");
    assert_eq!(context.blocked().as_deref(), Some("no space"));
    context.end_wait(Waiter::Room);
    assert_eq!(context.condition(), Condition::Waiting("no space".to_owned()));
    assert_eq!(context.last_wait(), LastWait::Lasts);
    context.end_wait(Waiter::Pages);
    assert_eq!(context.condition(), Condition::Running);
    assert!(matches!(context.last_wait(), LastWait::Ended(_)));
}

#[test]
fn a_retry_ends_with_success_or_with_the_volume() {
    let (_directory, context) = context();
    let full = || NodeError::io("write", "x", std::io::ErrorKind::StorageFull.into());
    let mut failures = 2;
    let retried = context.with_retry(Waiter::Log, || {
        failures -= 1;
        if failures >= 0 { Err(full()) } else { Ok(7) }
    });
    assert_eq!(retried.unwrap(), 7);
    assert_eq!(context.condition(), Condition::Running);
    let waiting = Arc::clone(&context);
    let waiter = thread::spawn(move || waiting.with_retry(Waiter::Log, || Err::<(), _>(full())).is_err());
    redoubt_test_support::wait::until("a blocked writer", || context.blocked().is_some());
    context.close();
    assert!(waiter.join().unwrap());
    assert!(context.wait_for_work(|| Some(1)).is_none(), "a closed volume has no work");
}
