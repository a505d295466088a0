use super::*;

fn set(numbers: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    numbers.iter().for_each(|&number| set.set(number));
    set
}

#[test]
fn halves_are_disjoint_and_together_all() {
    assert_eq!(split(&set(&[0, 1])), Some([set(&[0]), set(&[1])]));
    assert_eq!(split(&set(&[1, 4, 9])), Some([set(&[1]), set(&[4, 9])]));
    assert_eq!(split(&set(&[0, 1, 2, 3, 6, 7])), Some([set(&[0, 1, 2]), set(&[3, 6, 7])]));
    assert_eq!(split(&set(&[3])), None);
}

/// Processes started by a side run on its half only, and other threads of this program keep their affinity.
#[test]
fn a_thread_passes_its_share_on() {
    let all = sched_getaffinity(None).unwrap();
    let Some(halves) = split(&all) else {
        redoubt_test_support::skip("shares of the processors", "there is only one here");
        return;
    };
    let allowed = std::thread::spawn(move || {
        Share(halves[1]).take().unwrap();
        let child = std::process::Command::new("cat").arg("/proc/self/status").output().unwrap();
        assert!(child.status.success());
        String::from_utf8(child.stdout).unwrap()
    });
    let allowed = allowed.join().unwrap();
    let line = allowed.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let first: usize = line.trim().split([',', '-']).next().unwrap().parse().unwrap();
    assert!(halves[1].is_set(first) && !halves[0].is_set(first), "{line}");
    assert_eq!(sched_getaffinity(None).unwrap(), all);
}
