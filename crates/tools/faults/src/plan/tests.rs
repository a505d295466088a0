use super::*;

struct Of(Kind, &'static [u8]);

impl Subject for Of {
    fn kind(&self) -> Kind {
        self.0
    }

    fn path(&self) -> &[u8] {
        self.1
    }
}

const LOG: Of = Of(Kind::File, b"/data/log/segment-1");

fn fired(plan: &Plan, call: Call, subject: &Of, calls: u64) -> Vec<u64> {
    (1..=calls).filter(|_| plan.decide(call, subject).fault.is_some()).collect()
}

#[test]
fn globs_match_whole_paths() {
    for (glob, path, expected) in [
        ("*", "", true),
        ("/a", "/a", true),
        ("/a", "/ab", false),
        ("*/log/*", "/data/log/segment-1", true),
        ("*/log/*", "/data/logs/x", false),
        ("*.frm", "/d/t.frm", true),
        ("*.frm", "/d/t.frm~", false),
        ("/d*a*b", "/dxaxab", true),
        ("a**b", "ab", true),
    ] {
        assert_eq!(matches(glob.as_bytes(), path.as_bytes()), expected, "{glob} {path}");
    }
}

#[test]
fn a_rule_fires_as_often_as_it_says() {
    let plan = Plan::parse(1, "write eio every=3 max=2").unwrap();
    assert_eq!(fired(&plan, Call::Write, &LOG, 12), [3, 6]);
    let plan = Plan::parse(1, "write,sync enospc kind=file nth=2\n").unwrap_err();
    assert!(plan.contains("no system answers sync with enospc"), "{plan}");
    let plan = Plan::parse(1, "write eio kind=file nth=2").unwrap();
    assert_eq!(fired(&plan, Call::Read, &LOG, 5), []);
    assert_eq!(fired(&plan, Call::Write, &Of(Kind::Tcp, b""), 5), []);
    assert_eq!(fired(&plan, Call::Write, &LOG, 5), [2]);
}

#[test]
fn paths_choose() {
    let plan = Plan::parse(1, "write eio path=*/log/* not=*-2").unwrap();
    assert_eq!(fired(&plan, Call::Write, &LOG, 1), [1]);
    assert_eq!(fired(&plan, Call::Write, &Of(Kind::File, b"/data/log/segment-2"), 1), []);
    assert_eq!(fired(&plan, Call::Write, &Of(Kind::File, b"/data/pages/1"), 1), []);
}

#[test]
fn probability_is_kept_and_the_seed_decides() {
    let run = |seed| fired(&Plan::parse(seed, "read short p=0.1").unwrap(), Call::Read, &LOG, 10_000);
    let first = run(7);
    assert!((850..1150).contains(&first.len()), "{}", first.len());
    assert_eq!(first, run(7));
    assert_ne!(first, run(8));
}

#[test]
fn delays_come_on_top() {
    let plan = Plan::parse(1, "write delay us=10..20\nwrite eio\nwrite enospc").unwrap();
    for _ in 0..100 {
        let verdict = plan.decide(Call::Write, &LOG);
        assert!((10..=20).contains(&verdict.delay_us), "{}", verdict.delay_us);
        assert_eq!(verdict.fault.unwrap().fault, Fault::InputOutput);
    }
}

#[test]
fn what_cannot_be_meant_is_refused() {
    for (text, part) in [
        ("fly eio", "unknown call"),
        ("write", "fault is missing"),
        ("write explode", "unknown fault"),
        ("rename eintr p=0.1", "no system answers"),
        ("read swallow", "no system answers"),
        ("write eintr", "never ends"),
        ("write eio p=2", "not a probability"),
        ("write eio every=0", "at least 1"),
        ("write eio kind=pipe", "unknown kind"),
        ("write delay us=9..1", "must not be above"),
        ("write eio what", "NAME=VALUE"),
        ("# fine\n\nwrite eio color=red", "line 3"),
    ] {
        let error = Plan::parse(1, text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}
