//! Every target over every input of its corpus, and over seeded mutations of them. The work that libFuzzer does for
//! hours, an ordinary test does for seconds, with any toolchain.
//!
//! `REDOUBT_FUZZ_MUTATIONS` is the number of mutations of each target. Without it a target gets 2000, or fewer if it is
//! slow. `REDOUBT_FUZZ_SEED` is the first seed. A failure names the target, the input it began with and the seed of the mutation, and leaves the input in a
//! file.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use redoubt_fuzz::corpus::{self, CorpusError, EXTENSION, Inputs};
use redoubt_fuzz::mutate::mutate;
use redoubt_fuzz::{TARGETS, Target, canary};
use redoubt_test_support::{setting, setting_text};

/// Mutations of each target, without a setting.
const MUTATIONS: u64 = 2000;
/// Time after which a slow target gets no more, without a setting.
const TIME: Duration = Duration::from_secs(4);
/// Each target gets these, however slow it is.
const LEAST_MUTATIONS: u64 = 20;
/// Maximum size of all corpora together in the tree.
const MAX_CORPUS_BYTES: u64 = 2 << 20;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz")
}

fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let path = root().join("corpus").join(name).with_extension(EXTENSION);
    corpus::read(&path).unwrap().into_iter().collect()
}

fn run(target: &Target, input: &[u8], origin: &str) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.body)(input))) {
        let left = std::env::temp_dir().join(format!("redoubt-fuzz-{}.crash", target.name));
        std::fs::write(&left, input).unwrap();
        eprintln!("{}: found with {origin}; the input is in {}", target.name, left.display());
        std::panic::resume_unwind(panic);
    }
}

fn require_no_finding(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    let corpus = corpus(name);
    assert!(corpus.len() >= 5, "{name} has a corpus of {} inputs", corpus.len());
    for (input_name, input) in &corpus {
        run(target, input, input_name);
    }
    run(target, &[], "nothing");
    let first_seed = setting("REDOUBT_FUZZ_SEED", 1);
    let is_chosen = setting_text("REDOUBT_FUZZ_MUTATIONS").is_some();
    let count = setting("REDOUBT_FUZZ_MUTATIONS", MUTATIONS);
    let started = Instant::now();
    let mut done = 0u64;
    for seed in first_seed..first_seed + count {
        if !is_chosen && done >= LEAST_MUTATIONS && started.elapsed() > TIME {
            break;
        }
        let mut rng = fastrand::Rng::with_seed(seed);
        let (input_name, input) = &corpus[rng.usize(..corpus.len())];
        let (_, other) = &corpus[rng.usize(..corpus.len())];
        let mut input = input.clone();
        mutate(&mut rng, &mut input, other);
        run(target, &input, &format!("seed {seed} of {input_name}"));
        done += 1;
    }
    println!("{name}: {} inputs, {done} mutations", corpus.len());
}

macro_rules! each_target {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                require_no_finding(stringify!($name));
            }
        )*

        #[test]
        fn no_target_is_left_out() {
            let tested = [$(stringify!($name)),*];
            let all: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(tested[..], all[..]);
        }
    };
}

each_target! {
    certificate consensus_codec flash_trace frame_decoder group_actions group_log group_replica log_segments mysql_applier
    mysql_redo_parser mysql_redo_views net_admission nfs_calls node_files node_frames page_bytes page_files page_journal
    raw_device record_applier redo_parser redo_views server_text tcp_engine tcp_segment unsent_file
}

#[test]
fn the_canary_dies_of_its_planted_bug_and_of_nothing_less() {
    let right = b"RDBTCNRY\x02\x80\x01\x81";
    assert!(catch_unwind(|| canary::run(right)).is_err());
    for at in 0..right.len() {
        let mut wrong = right.to_vec();
        wrong[at] ^= 1;
        canary::run(&wrong);
        canary::run(&right[..at]);
    }
}

#[test]
fn the_corpus_of_tcp_gets_into_connections() {
    let all = corpus("tcp_engine");
    let counters: Vec<_> =
        all.iter().filter_map(|(_, input)| redoubt_fuzz::tcp_engine::play(input)).collect();
    let sum = |of: fn(&redoubt_tcp::Counters) -> u64| counters.iter().map(of).sum::<u64>();
    let reached = [
        sum(|counters| counters.opened),
        sum(|counters| counters.data_in_len_bytes),
        sum(|counters| counters.data_out_len_bytes),
        sum(|counters| counters.retransmitted),
        sum(|counters| counters.cookies_accepted),
        sum(|counters| counters.reset_by_peer),
        sum(|counters| counters.window_probes),
        sum(|counters| counters.keepalive_probes),
        sum(|counters| counters.loss_probes),
        sum(|counters| counters.fast_recoveries),
    ];
    assert!(reached.iter().all(|count| *count > 0), "{reached:?}");
}

#[test]
fn the_corpus_is_small_and_of_known_targets_only() {
    let mut total = 0;
    for entry in std::fs::read_dir(root().join("corpus")).unwrap() {
        let path = entry.unwrap().path();
        let known = TARGETS.iter().any(|target| path.ends_with(format!("{}.{EXTENSION}", target.name)));
        assert!(known, "{} belongs to no target", path.display());
        total += std::fs::metadata(&path).unwrap().len();
    }
    assert!(total < MAX_CORPUS_BYTES, "the corpus has {total} bytes");
}

#[test]
fn a_corpus_is_packed_and_unpacked_whole_and_damage_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let call = |words: &[&str]| corpus::main(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
    let inputs = Inputs::from([
        ("found-it".to_owned(), b"abc".to_vec()),
        ("empty".to_owned(), Vec::new()),
        ("real-1".to_owned(), (0..=255).collect()),
    ]);
    corpus::write(Path::new(&path("a.corpus")), &inputs).unwrap();
    call(&["unpack", &path("a.corpus"), &path("d")]).unwrap();
    std::fs::write(path("d/0123abc"), b"abc").unwrap();
    call(&["pack", &path("d"), &path("b.corpus")]).unwrap();
    let packed = std::fs::read(path("a.corpus")).unwrap();
    assert_eq!(std::fs::read(path("b.corpus")).unwrap(), packed);
    call(&["add", &path("b.corpus"), &path("d/real-1"), "found-more"]).unwrap();
    let more = corpus::read(Path::new(&path("b.corpus"))).unwrap();
    assert_eq!((more.len(), &more["found-more"]), (4, &inputs["real-1"]));
    assert_eq!(call(&["list", &path("a.corpus")]).unwrap().lines().count(), 3);

    for at in 0..packed.len() {
        let mut wrong = packed.clone();
        wrong[at] ^= 1;
        assert!(corpus::decode(&wrong).is_err(), "byte {at}");
        assert!(corpus::decode(&packed[..at]).is_err(), "{at} bytes");
    }
    let climbing = Inputs::from([("../x".to_owned(), Vec::new())]);
    assert!(matches!(corpus::encode(&climbing), Err(CorpusError::Name { .. })));
    assert!(matches!(call(&["pack"]), Err(CorpusError::Usage)));
}

#[test]
fn every_target_is_a_program_and_every_target_named_in_the_documentation_exists() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let documentation = std::fs::read_to_string(root().join("../docs/dev/fuzzing.md")).unwrap();
    for name in TARGETS.iter().map(|target| target.name).chain(["canary"]) {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is no program in fuzz/Cargo.toml");
        assert!(root().join(format!("fuzz_targets/{name}.rs")).exists());
        assert!(documentation.contains(&format!("`{name}`")), "docs/dev/fuzzing.md does not speak of {name}");
    }
    // The list of decoders: the last column names targets.
    let list = documentation.split("## Decoders").nth(1).expect("a section with the list of decoders");
    let list = list.split("\n## ").next().unwrap_or_default();
    let rows: Vec<_> =
        list.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| decoder")).collect();
    assert!(rows.len() > 30, "the list has {} decoders", rows.len());
    for row in rows {
        let targets = row.trim_end_matches(['|', ' ']).rsplit('|').next().unwrap_or_default();
        let named: Vec<_> = targets.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty() || targets.contains("none:"), "no target, and no reason: {row}");
        for name in named {
            assert!(TARGETS.iter().any(|target| target.name == name), "{name} is no target: {row}");
        }
        // The decoder is there, in the file that the list names.
        let file = row.split('`').nth(1).expect("a file in the first column");
        let mut parts = std::fs::read_dir(root().join("../crates")).unwrap();
        assert!(parts.any(|part| part.unwrap().path().join(file).exists()), "{file} does not exist: {row}");
    }
}
