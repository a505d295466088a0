//! Real servers with TCP in user space behind a cable that loses, doubles, overtakes and damages frames. All data
//! arrive right. The kernel's TCP on the same cable passes too, which shows that the cable's faults are within the
//! limits of TCP.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use crate::lab::{ADDRESS, Lab, config, large_results_and_files, script};
use redoubt_chaos::bad_cable::{BadCable, Faults};
use redoubt_harness::connections::{certificates, statements};
use redoubt_harness::fetched::find_or_skip;
use redoubt_test_support::{NetworkPair, skip};
use redoubt_workload::launcher::{Launcher, find_redoubt};
use redoubt_workload::product::{FetchedServer, Product};
use std::time::Instant;

/// Frames of a thousand, to the server and to the client, of each kind of fault.
const FAULTS: [Faults; 2] = [Faults::of_each(10), Faults::of_each(20)];
const SEED: u64 = 20_261_128;

/// Whose TCP a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    User,
    /// Of a plain server.
    Kernel,
}

fn timed(text: &str, work: impl FnOnce()) {
    let begin = Instant::now();
    work();
    println!("    {text}: {:.1} s", begin.elapsed().as_secs_f64());
}

/// Everything that a client does, on a cable with faults.
fn all_arrives(pair: NetworkPair, product: &Product, whose: Whose, tls: &[String]) {
    let cable = BadCable::join(&pair, SEED).unwrap();
    let mut config = config(&pair, NetworkPair::INTERFACE, &find_redoubt().unwrap()).product(product.clone());
    if whose == Whose::Kernel {
        config.launcher = Launcher::Stock;
    }
    if *product != Product::MariaDb {
        config = config.server_arg("--mysqlx=OFF");
    }
    config.server_args.extend(tls.iter().cloned());
    let mut lab = Lab::start(pair, config);
    cable.set(FAULTS);
    println!("{product:?}, TCP of {whose:?}:");
    timed("large results and files", || large_results_and_files(&lab, 4));
    timed("8 connections with 200 statements each", || {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| statements(&mut lab.connect(), 200).unwrap());
            }
        });
    });
    let (script, expected) = script();
    // The client of MariaDB speaks TLS with both.
    for way in [&["--ssl=0"][..], &["--ssl", "--ssl-verify-server-cert=0"]] {
        timed(&way.join(" "), || assert!(lab.answer(way, &script) == expected, "{way:?}"));
    }
    if whose == Whose::User {
        let status = lab.status();
        println!("    {status}");
        let number = |name: &str| status["interfaces"][0][name].as_u64().unwrap();
        assert!(number("segments_retransmitted") > 0 && number("bad_checksums") > 0, "{status}");
        // Each of them, and none by the kernel.
        assert!(number("opened") >= 11, "{status}");
    }
    cable.set([Faults::default(); 2]);
    lab.server.shutdown().unwrap();
    let happened = cable.end().unwrap();
    for (happened, faults) in happened.into_iter().zip(FAULTS) {
        println!("    {happened:?}");
        // All of them did happen, about as often as they should have.
        let about = happened.frames * u64::from(faults.lost) / 1000;
        assert!(about > 20);
        for count in [happened.lost, happened.doubled, happened.held_back, happened.damaged] {
            assert!(count > about / 2 && count < about * 2, "{happened:?}");
        }
    }
}

fn check(test: &str, product: &Product) {
    let directory = tempfile::tempdir().unwrap();
    let tls = certificates(directory.path(), ADDRESS).unwrap();
    for whose in [Whose::User, Whose::Kernel] {
        let Some(pair) = NetworkPair::create_with_middle() else {
            return skip(test, "network namespaces need root");
        };
        all_arrives(pair, product, whose, &tls);
    }
}

#[test]
fn what_a_bad_cable_carries_arrives_right() {
    check("what_a_bad_cable_carries_arrives_right", &Product::MariaDb);
}

#[test]
fn what_a_bad_cable_carries_from_mysql_arrives_right() {
    let test = "what_a_bad_cable_carries_from_mysql_arrives_right";
    let Some(product) = find_or_skip(FetchedServer::MySql97, test) else { return };
    check(test, &product);
}
