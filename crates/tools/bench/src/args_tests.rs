use super::*;
use clap::Parser;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    options: Options,
}

fn parse(words: &[&str]) -> std::result::Result<Options, clap::Error> {
    Command::try_parse_from(std::iter::once("bench").chain(words.iter().copied()))
        .map(|command| command.options)
}

#[test]
fn rates_and_sizes_are_read_and_shown() {
    for (text, bits) in [
        ("none", None),
        ("200mbit", Some(200_000_000)),
        ("1gbit", Some(1_000_000_000)),
        ("1500kbit", Some(1_500_000)),
    ] {
        let rate = parse_bandwidth(text).unwrap();
        assert_eq!(rate, Bandwidth(bits));
        assert_eq!(rate.to_string(), text);
    }
    assert!(
        parse_bandwidth("200").is_err()
            && parse_bandwidth("1kbit").is_err()
            && parse_bandwidth("mbit").is_err()
    );
    assert_eq!(parse_size("128M"), Ok(128 << 20));
    assert_eq!(parse_size("1GiB"), Ok(1 << 30));
    assert!(parse_size("1K").is_err() && parse_size("M").is_err() && parse_size("12 parsecs").is_err());
    assert_eq!(parse_delay("0.5"), Ok(Duration::from_micros(500)));
    assert!(parse_delay("-1").is_err() && parse_delay("NaN").is_err());
}

#[test]
fn lists_variants_and_defaults() {
    let options = parse(&[
        "--pool",
        "128M,256M",
        "--pool",
        "1G",
        "--variant",
        "cache=--page-cache 2GiB",
        "--node-variant",
        "pmem=--pretend-pmem --log-path {memory}",
        "--transactions",
        "7",
    ])
    .unwrap();
    assert_eq!(options.pool, [128 << 20, 256 << 20, 1 << 30]);
    assert_eq!(options.variant[0].options, ["--page-cache", "2GiB"]);
    assert_eq!(options.node_variant[0].options, ["--pretend-pmem", "--log-path", "{memory}"]);
    assert_eq!(options.until(), Until::Transactions(7));
    assert_eq!(options.warm_up(128 << 20), 2048);
    assert_eq!(options.backend.len(), 3);
    assert!(parse(&["--variant", "no options"]).is_err());
    assert!(parse(&["--transactions", "1", "--seconds", "1"]).is_err());
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let refused = |words: &[&str]| parse(words).unwrap().check().unwrap_err().to_string();
    assert!(refused(&["--no-namespaces"]).contains("--bandwidth none"));
    assert!(refused(&["--think", "--workload", "oltp_read_only"]).contains("tpcc"));
    assert!(refused(&["--variant", "a=x", "--variant", "a=y"]).contains("name"));
    assert!(refused(&["--variant", "a=x", "--node-variant", "a=y"]).contains("name"));
    parse(&["--no-namespaces", "--bandwidth", "none"]).unwrap().check().unwrap();
}
