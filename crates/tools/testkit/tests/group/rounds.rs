//! Rounds of random trouble for a group of three under load: members are killed, stopped, cut off, isolated and shut
//! down, one, two or all of them, some again while they come back. Then nothing that was acknowledged is lost, and all
//! members are equal. With even seeds each row that a transaction changes is sent as a part of its own.
//!
//! `REDOUBT_GROUP_ROUNDS=COUNT` does as many (`make group-rounds`), `REDOUBT_GROUP_SEED=N` other ones. The events of a
//! round follow from the seed alone; their position within a transaction does not. Each member has a network of its
//! own, which needs root.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use fastrand::Rng;
use redoubt_drill::group::load::Load;
use redoubt_drill::group::{Group, PATIENCE, Provider};
use redoubt_test_support::setting;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::find_redoubt;
use redoubt_workload::server::ServerConfig;
use redoubt_workload::sql::execute;
use std::time::{Duration, Instant};

const MEMBERS: usize = 3;
const ALL: [usize; MEMBERS] = [0, 1, 2];
const CLIENTS: u32 = 3;
/// Transactions in parts wait for each other across servers, which no server can detect. Such waits end by their
/// timeout.
const IN_PARTS: [&str; 3] =
    ["--wsrep-trx-fragment-unit=rows", "--wsrep-trx-fragment-size=1", "--innodb-lock-wait-timeout=1"];
/// Rounds of one group.
const ROUNDS_OF_GROUP: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// SIGKILL, and a start.
    Kill,
    /// SIGSTOP, SIGCONT.
    Stop,
    /// Its cable is pulled.
    Cut,
    /// Its connections end, and none can be made.
    Isolate,
    /// An orderly shutdown, and a start.
    Leave,
}

/// Something that begins or ends, so long after the round began.
#[derive(Clone, Copy, Debug)]
struct Step {
    at: Duration,
    member: usize,
    trouble: Trouble,
    begins: bool,
}

/// The steps of a round, in order of time.
fn plan(random: &mut Rng) -> Vec<Step> {
    let mut members = ALL.to_vec();
    random.shuffle(&mut members);
    let count = [1, 1, 1, 2, 2, 3][random.usize(..6)];
    let mut steps = Vec::new();
    for member in members.into_iter().take(count) {
        let mut at = Duration::from_millis(random.u64(..1500));
        // Once more, perhaps while it comes back.
        for _ in 0..random.usize(1..=2) {
            let kinds = [Trouble::Kill, Trouble::Stop, Trouble::Cut, Trouble::Isolate, Trouble::Leave];
            let trouble = kinds[random.usize(..kinds.len())];
            let end =
                at + Duration::from_millis([50, 300, 1500, 5000][random.usize(..4)] + random.u64(..500));
            steps.push(Step { at, member, trouble, begins: true });
            steps.push(Step { at: end, member, trouble, begins: false });
            at = end + Duration::from_millis(random.u64(..2000));
        }
    }
    steps.sort_by_key(|step| step.at);
    steps
}

fn do_it(group: &mut Group, step: Step) -> Result<()> {
    let isolate = |group: &Group, is_on: u8| -> Result<()> {
        let statement = format!("SET GLOBAL wsrep_provider_options = 'gmcast.isolate={is_on}'");
        execute(&mut group.server(step.member)?.connect()?, &statement)
    };
    match (step.trouble, step.begins) {
        (Trouble::Kill, true) => group.kill9(step.member),
        (Trouble::Leave, true) => group.shutdown(step.member),
        (Trouble::Kill | Trouble::Leave, false) => group.server_mut(step.member)?.spawn(&[]),
        (Trouble::Stop, true) => group.stop_process(step.member),
        (Trouble::Stop, false) => group.cont(step.member),
        (Trouble::Cut, true) => group.cut(step.member),
        (Trouble::Cut, false) => group.rejoin(step.member),
        (Trouble::Isolate, is_on) => isolate(group, u8::from(is_on)),
    }
}

/// A member that has just started accepts no shutdown or isolation: it is killed or cut off instead.
fn suited(step: Step, starting: &[usize]) -> Trouble {
    match step.trouble {
        Trouble::Leave if starting.contains(&step.member) => Trouble::Kill,
        Trouble::Isolate if starting.contains(&step.member) => Trouble::Cut,
        other => other,
    }
}

fn round(group: &mut Group, load: &Load, random: &mut Rng) -> Result<Duration> {
    let steps = plan(random);
    println!("{}", steps.iter().map(shown).collect::<Vec<_>>().join(", "));
    let began = Instant::now();
    let mut starting = Vec::new();
    let mut under_way: Vec<(usize, Trouble)> = Vec::new();
    for mut step in steps {
        load.run_for(step.at.saturating_sub(began.elapsed()));
        if step.begins {
            step.trouble = suited(step, &starting);
            under_way.push((step.member, step.trouble));
        } else {
            let at = under_way.iter().position(|(member, _)| *member == step.member).unwrap();
            step.trouble = under_way.remove(at).1;
        }
        do_it(group, step)?;
        if !step.begins && matches!(step.trouble, Trouble::Kill | Trouble::Leave) {
            starting.push(step.member);
        }
    }
    let healed = Instant::now();
    starting.dedup();
    for member in starting {
        group.server_mut(member)?.wait_ready()?;
    }
    ALL.into_iter().try_for_each(|member| group.wait_synced(member, PATIENCE))?;
    load.wait_for_more(&ALL, 10, PATIENCE)?;
    Ok(healed.elapsed())
}

fn shown(step: &Step) -> String {
    let sign = if step.begins { "" } else { "end of " };
    format!("{:.1}s {sign}{:?} m{}", step.at.as_secs_f64(), step.trouble, step.member)
}

/// Some rounds with one group, then all is compared.
fn rounds(provider: &Provider, seed: u64, count: u64) -> Result<()> {
    let mut random = Rng::with_seed(seed);
    let small = |config: &mut ServerConfig| {
        config.buffer_pool_bytes = 64 << 20;
        if seed.is_multiple_of(2) {
            config.server_args.extend(IN_PARTS.map(str::to_owned));
        }
    };
    let mut group = Group::create_apart(provider, MEMBERS, small)?;
    let result = (|| {
        let load = Load::start(&group, CLIENTS)?;
        load.wait_for_more(&ALL, 20, PATIENCE)?;
        for number in 0..count {
            print!("seed {seed} round {number}: ");
            let took = round(&mut group, &load, &mut random)?;
            println!("  all are back {took:.1?} after the last trouble");
        }
        let summaries = load.stop()?;
        let tables = group.require_equal_checksums()?;
        let report = group.require_sound_ledger()?;
        println!(
            "{tables} tables are equal; commits acknowledged {}, found {}; {summaries:?}",
            report.rows_acknowledged, report.rows_found
        );
        Ok(())
    })();
    result.map_err(|error: Error| {
        group.keep();
        Error::State(format!("seed {seed}: {error}\n{}", group.log_tails(60)))
    })
}

#[test]
fn nothing_is_lost_in_rounds_of_random_trouble() {
    if !rustix::process::geteuid().is_root() {
        return redoubt_test_support::skip("rounds of trouble for a group", "network namespaces need root");
    }
    let library = find_redoubt().unwrap().with_file_name("libredoubt_group.so");
    assert!(library.is_file(), "{} is missing: cargo build --release --workspace", library.display());
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../target/mariadb-server/usr/bin");
    let provider = Provider { library, scripts: Some(scripts.into()), ..Provider::default() };
    let (mut left, mut seed) = (setting("REDOUBT_GROUP_ROUNDS", 3), setting("REDOUBT_GROUP_SEED", 1));
    while left > 0 {
        let count = left.min(ROUNDS_OF_GROUP);
        if let Err(error) = rounds(&provider, seed, count) {
            panic!("{error}");
        }
        (left, seed) = (left - count, seed + 1);
    }
}
