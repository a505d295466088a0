use super::*;
use clap::Parser;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    options: Options,
}

#[test]
fn backends_take_turns_and_the_local_server_runs_once_per_pool() {
    let words = [
        "bench",
        "--pool",
        "128M,512M",
        "--bandwidth",
        "200mbit,none",
        "--repetitions",
        "2",
        "--variant",
        "z=--compress",
    ];
    let options = Command::parse_from(words).options;
    let candidates = Candidate::all(&options);
    let turns = plan(&options, &candidates);
    let names: Vec<_> = turns.iter().map(|turn| turn.candidate.name.as_str()).collect();
    let cycle = ["local", "remote-nbd", "redoubt", "redoubt-z", "remote-nbd", "redoubt", "redoubt-z"];
    assert_eq!(names, cycle.repeat(4));
    let first: Vec<_> = turns.iter().take(7).map(|turn| turn.bandwidth.to_string()).collect();
    assert_eq!(first, ["none", "200mbit", "200mbit", "200mbit", "none", "none", "none"]);
    assert!(turns.iter().take(7).all(|turn| turn.pool_bytes == 128 << 20 && turn.repetition == 1));
    assert!(turns.iter().skip(14).all(|turn| turn.repetition == 2));
}

#[test]
fn broken_results_are_refused_by_line() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let good = serde_json::to_string(&RunReport::default()).unwrap();
    std::fs::write(file.path(), format!("{good}\n\n{good}\n")).unwrap();
    assert_eq!(read(file.path()).unwrap().len(), 2);
    std::fs::write(file.path(), format!("{good}\n{{}}\n")).unwrap();
    assert!(read(file.path()).unwrap_err().to_string().contains(":2"));
}

#[test]
fn results_of_other_conditions_are_not_compared() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let run = |processors: &str, repetition| RunReport {
        processors: processors.to_owned(),
        repetition,
        ..RunReport::default()
    };
    let text = |runs: [RunReport; 2]| runs.map(|run| serde_json::to_string(&run).unwrap()).join("\n");
    std::fs::write(file.path(), text([run("shared", 1), run("shared", 2)])).unwrap();
    assert_eq!(read(file.path()).unwrap().len(), 2);
    std::fs::write(file.path(), text([run("shared", 1), run("separate", 2)])).unwrap();
    let error = read(file.path()).unwrap_err().to_string();
    assert!(error.contains("processors shared") && error.contains("processors separate"), "{error}");
}
