use super::*;

const STAT: &str = "cpu  30 0 30 130 10 0 0 0 0 0
cpu0 10 0 10 60 10 0 0 10 5 0
cpu1 20 0 20 70 0 0 0 0 0 0
intr 1 2 3
cpu2 1 1 1 1 1 1 1 1";

#[test]
fn allowed_processors_are_added_up() {
    assert_eq!(add_up(STAT, &|_| true), Some(Ticks { cores: 2, idle: 140, all: 210 }));
    assert_eq!(add_up(STAT, &|number| number == 1), Some(Ticks { cores: 1, idle: 70, all: 110 }));
    assert_eq!(add_up(STAT, &|_| false), None);
    assert_eq!(add_up("cpu0 10 x 10 60", &|_| true), None);
    assert_eq!(add_up("", &|_| true), None);
}

#[test]
fn runnable_threads_are_counted() {
    assert_eq!(runnable_threads("8.21 8.05 6.57 13/288 20187\n"), Some(13));
    assert_eq!(runnable_threads("8.21 8.05"), None);
    assert_eq!(runnable_threads("1 2 3 x/5 6"), None);
}

#[test]
fn idle_is_what_the_counters_grew_by() {
    let before = Ticks { cores: 2, idle: 100, all: 1000 };
    let of = |idle, all| used(before, Ticks { cores: 2, idle, all }).map(|(_, idle_cores)| idle_cores);
    assert_eq!(of(105, 1020), Some(0.5));
    assert_eq!(of(100, 1020), Some(0.0));
    assert_eq!(of(99, 1020), Some(0.0));
    assert_eq!(of(130, 1020), Some(2.0));
    assert_eq!(of(100, 1000), None);
    assert_eq!(of(0, 10), None);
    assert_eq!(used(before, Ticks { cores: 3, idle: 110, all: 1030 }), None);
}

#[test]
fn this_machine_says_how_busy_it_is_and_a_busy_thread_is_seen() {
    let mut cores = Cores::default();
    assert_eq!(cores.look(), None);
    let began = Instant::now();
    while began.elapsed() < INTERVAL_MIN * 3 {
        std::hint::spin_loop();
    }
    let found = cores.look().unwrap();
    assert!(found.cores >= 1.0 && found.idle_cores >= 0.0 && found.runnable >= 0.0, "{found:?}");
    // This thread had one of the processors to itself, or shared it with other busy threads.
    assert!(found.idle_cores < found.cores - 0.5, "{found:?}");
    // Too early for another measurement.
    assert_eq!(cores.look(), Some(found));
}
