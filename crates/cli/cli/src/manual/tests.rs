use super::*;
use clap::{Command, Parser};

fn pages() -> std::collections::BTreeMap<String, String> {
    let directory = tempfile::tempdir().unwrap();
    run(&ManualArguments { directory: directory.path().join("man") }).unwrap();
    std::fs::read_dir(directory.path().join("man"))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap())
        })
        .collect()
}

/// All commands, as words after `redoubt`.
fn commands(command: &Command, words: &[&str], out: &mut Vec<Vec<String>>) {
    out.push(words.iter().map(|&word| word.to_owned()).collect());
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        commands(below, &[words, &[below.get_name()]].concat(), out);
    }
}

#[test]
fn every_command_has_a_page_with_each_of_its_options() {
    let pages = pages();
    let definition = Arguments::command();
    let mut all = Vec::new();
    commands(&definition, &["redoubt"], &mut all);
    assert!(all.len() > 20, "{all:?}");
    for words in &all {
        let text = &pages[&format!("{}.1", words.join("-"))];
        assert!(
            text.contains(&format!(".TH {} 1 \"\" ", words.join("-").replace('-', "\\-").to_uppercase())),
            "{words:?}: {text}"
        );
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "\"EXIT STATUS\"", "ENVIRONMENT", "\"SEE ALSO\""] {
            assert!(text.contains(&format!(".SH {section}\n")), "{words:?} has no {section}: {text}");
        }
        let mut command = &definition;
        for word in words.iter().skip(1) {
            command = command.find_subcommand(word).unwrap();
        }
        let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
        for option in shown.filter_map(clap::Arg::get_long) {
            let escaped = format!("\\-\\-{}", option.replace('-', "\\-"));
            assert!(text.contains(&escaped), "{words:?} lacks --{option}");
        }
    }
    assert_eq!(pages.len(), all.len(), "pages of nothing: {:?}", pages.keys());
}

#[test]
fn commands_to_type_keep_their_lines() {
    let page = &pages()["redoubt.1"];
    let notes = page.split(".SH NOTES\n").nth(1).unwrap();
    assert!(
        notes.starts_with(".PP\nFirst steps:\n.nf\n  redoubt node")
            && notes.contains("\n  redoubt volume create")
    );
    assert!(notes.contains("\n.fi\n.PP\nAn existing server"), "{notes}");
}

#[test]
fn the_synopsis_is_that_of_the_help() {
    let pages = pages();
    let of = |name: &str| {
        let rest = pages[name].split(".SH SYNOPSIS\n").nth(1).unwrap();
        rest.split("\n.").next().unwrap().to_owned()
    };
    let (run, node) = (of("redoubt-run.1"), of("redoubt-node.1"));
    assert!(run.contains("redoubt run") && run.contains("\\-\\- <COMMAND>"), "{run}");
    assert!(node.contains("\\-\\-data <DIR>"), "{node}");
}

#[test]
fn a_heading_covers_its_own_options_only() {
    for command in [["redoubt", "run", "--help"], ["redoubt", "status", "--help"]] {
        let Err(help) = Arguments::try_parse_from(command) else { panic!("no help") };
        let help = help.to_string();
        let tls = help.split("TLS:\n").nth(1).unwrap();
        assert!(tls.contains("--tls-key") && !tls.contains("--volume"), "{help}");
    }
}

#[test]
fn every_shell_completes_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let Ok(arguments) = Arguments::try_parse_from(["redoubt", "completions", shell]) else {
            panic!("{shell} is not understood")
        };
        let crate::args::Command::Completions(arguments) = arguments.command else { panic!("{shell}") };
        let mut script = Vec::new();
        clap_complete::generate(arguments.shell, &mut Arguments::command(), NAME, &mut script);
        let script = String::from_utf8(script).unwrap();
        for word in ["export", "certificates", "doctor", "page-protection", "no-takeover"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
    }
}

#[test]
fn reference_page_lists_every_exit_code() {
    let page = include_str!("../../../../../docs/reference/exit-codes.md");
    let listed = redoubt_test_support::listed::rows(page, "Exit codes");
    let known: Vec<_> = EXIT_STATUS.iter().map(|(code, meaning)| format!("| {code} | {meaning} |")).collect();
    assert_eq!(listed, known);
}
