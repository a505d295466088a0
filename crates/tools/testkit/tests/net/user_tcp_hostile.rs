//! Real servers with TCP in user space, and strangers on the client's wire who flood, guess, send invalid packets, and
//! abandon connections. Meanwhile a client keeps working; the server's memory is bounded, and it stops on request.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

mod stranger;

use crate::lab::{ADDRESS, Lab, PORT};
use mysql::Conn;
use mysql::prelude::Queryable;
use redoubt_harness::command::PATIENCE;
use redoubt_harness::connections::statements;
use redoubt_tcp::Seq;
use redoubt_tcp::segment::{Flags, Timestamps};
use redoubt_test_support::Side;
use redoubt_workload::process::poll_until;
use redoubt_workload::sql::query_text;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stranger::{Known, Stranger, address_of};

/// A frame lost among many costs a client a retransmission or a few: so much longer a statement of it may take than one
/// of another client of the same server, whom the attack does not reach.
const LONGEST_GAP: Duration = Duration::from_secs(4);

/// Statements one after the other until the end; how many, and the longest.
fn work(conn: &mut Conn, ended: &AtomicBool) -> (u64, Duration) {
    let (mut count, mut longest) = (0u64, Duration::ZERO);
    while !ended.load(Ordering::Acquire) {
        let begin = Instant::now();
        let answer: Option<u64> = conn.query_first(format!("SELECT {count}")).unwrap();
        assert_eq!(answer, Some(count));
        longest = longest.max(begin.elapsed());
        count += 1;
    }
    (count, longest)
}

fn memory_len_bytes(lab: &Lab) -> u64 {
    let path = format!("/proc/{}/status", lab.server.process_id().unwrap());
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
}

/// Ends the client though the attack fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// An attack, and a client that works on beside it, whose address the attacker knows; the server may take so much more
/// memory.
fn beside<Done>(
    lab: &Lab,
    name: &str,
    more_len_bytes: u64,
    attack: impl FnOnce(&mut Stranger, SocketAddr) -> Done,
) -> Done {
    let mut stranger = Stranger::new(&lab.pair, format!("{ADDRESS}:{PORT}").parse().unwrap());
    let mut conn = lab.connect();
    statements(&mut conn, 20).unwrap();
    let host =
        query_text(&mut conn, "SELECT host FROM information_schema.processlist WHERE id = CONNECTION_ID()");
    let client: SocketAddr = host.unwrap()[0][0].parse().unwrap();
    let before = memory_len_bytes(lab);
    let ended = AtomicBool::new(false);
    let begin = Instant::now();
    let mut local = lab.server.connect().unwrap();
    let (done, (count, longest), (_, unreached)) = std::thread::scope(|scope| {
        let good = scope.spawn(|| work(&mut conn, &ended));
        let unreached = scope.spawn(|| work(&mut local, &ended));
        let end = End(&ended);
        let done = attack(&mut stranger, client);
        drop(end);
        (done, good.join().unwrap(), unreached.join().unwrap())
    });
    let after = memory_len_bytes(lab);
    println!(
        "{name}: {} frames in {:.1} s; {count} statements beside, longest {longest:.1?}; memory {} MiB, then {} MiB",
        stranger.sent,
        begin.elapsed().as_secs_f64(),
        before >> 20,
        after >> 20
    );
    assert!(longest < LONGEST_GAP + 2 * unreached, "{longest:?}, and {unreached:?} where no attack is");
    assert!(after < before + more_len_bytes, "{before} and then {after}");
    // New clients are served, too.
    statements(&mut lab.connect(), 20).unwrap();
    done
}

/// Hears what there is after each so many, so that the server has had time for them.
const BURST: u32 = 200;

fn hear_all(stranger: &mut Stranger) -> u64 {
    let begin = Instant::now();
    let mut count = 0;
    while begin.elapsed() < Duration::from_millis(2) {
        count += u64::from(stranger.hear().is_some());
    }
    count
}

fn floods_of_syns(lab: &Lab) {
    let answers = beside(lab, "SYNs from 100,000 addresses", 64 << 20, |stranger, _| {
        let mut answers = 0;
        for number in 0..100_000 {
            let known = Known { local: address_of(number), next: Seq(number), told: Seq(0) };
            stranger.send(&stranger.header(&known, Flags::SYN), b"");
            if number % BURST == 0 {
                answers += hear_all(stranger);
            }
        }
        answers
    });
    println!("    {answers} answers");
    assert!(answers > 20_000);
}

fn floods_of_acknowledgements(lab: &Lab) {
    beside(lab, "ACKs and data for connections that there are not", 64 << 20, |stranger, _| {
        let mut rng = fastrand::Rng::with_seed(2);
        for number in 0..100_000 {
            let known = Known {
                local: address_of(rng.u32(..1 << 20)),
                next: Seq(rng.u32(..)),
                told: Seq(rng.u32(..)),
            };
            let flags = [Flags::ACK, Flags::ACK.with(Flags::FIN), Flags::SYN.with(Flags::ACK), Flags::RST];
            let header = stranger.header(&known, flags[rng.usize(..4)]);
            stranger.send(&header, &[7; 1000][..rng.usize(..1000)]);
            if number % BURST == 0 {
                hear_all(stranger);
            }
        }
    });
}

/// Of the connection of the client beside: everything but what fits.
fn guesses(lab: &Lab) {
    beside(lab, "guesses at a client's connection", 64 << 20, |stranger, client| {
        let mut rng = fastrand::Rng::with_seed(3);
        for number in 0..100_000 {
            let known = Known { local: client, next: Seq(rng.u32(..)), told: Seq(rng.u32(..)) };
            let flags = [Flags::ACK, Flags::ACK.with(Flags::FIN), Flags::SYN, Flags::RST][rng.usize(..4)];
            let mut header = stranger.header(&known, flags);
            header.window = rng.u16(..);
            header.options.timestamps =
                rng.bool().then(|| Timestamps { value: rng.u32(..), echo: rng.u32(..) });
            stranger.send(&header, &[7; 1000][..rng.usize(..1000)]);
            if number % BURST == 0 {
                hear_all(stranger);
            }
        }
    });
    assert_eq!(lab.number("resets_received"), 0);
}

/// Options whose lengths are wrong, that come twice, or have no meaning.
fn options_that_cannot_be(lab: &Lab) {
    beside(lab, "options that cannot be", 64 << 20, |stranger, client| {
        let mut rng = fastrand::Rng::with_seed(4);
        for number in 0..50_000u32 {
            let local = if rng.bool() { client } else { address_of(number) };
            let known = Known { local, next: Seq(rng.u32(..)), told: Seq(rng.u32(..)) };
            let flags = if local != client && rng.bool() { Flags::SYN } else { Flags::ACK };
            let mut options: Vec<u8> = (0..rng.usize(..=40)).map(|_| rng.u8(..)).collect();
            // A known kind with a length near the right one, at any place.
            if options.len() > 12 {
                let place = rng.usize(..options.len() - 2);
                options[place] = [2, 3, 4, 5, 8][rng.usize(..5)];
                options[place + 1] = rng.u8(..12);
                options[..place].fill(1);
            }
            let header = stranger.header(&known, flags);
            stranger.send_with_options(&header, &options, &[7; 100][..rng.usize(..100)]);
            if number % BURST == 0 {
                hear_all(stranger);
            }
        }
    });
}

/// Answers go to the client's own interface, also when frames come with its address and another MAC address.
fn somebody_elses_card(lab: &Lab) {
    beside(lab, "a client's address with another card's", 64 << 20, |stranger, client| {
        let mut rng = fastrand::Rng::with_seed(5);
        stranger.from = [2, 0, 0, 0, 0, 99];
        for number in 0..100_000 {
            let is_its = number % 2 == 0;
            let local = if is_its { client } else { SocketAddr::new(client.ip(), rng.u16(1024..)) };
            let known = Known { local, next: Seq(rng.u32(..)), told: Seq(rng.u32(..)) };
            let flags = if is_its || rng.bool() { Flags::ACK } else { Flags::SYN };
            stranger.send(&stranger.header(&known, flags), b"");
            if number % BURST == 0 {
                hear_all(stranger);
            }
        }
    });
}

#[test]
fn strangers_do_not_keep_a_client_from_its_work() {
    let Some(mut lab) = Lab::create("strangers_do_not_keep_a_client_from_its_work", &[]) else { return };
    floods_of_syns(&lab);
    floods_of_acknowledgements(&lab);
    guesses(&lab);
    options_that_cannot_be(&lab);
    somebody_elses_card(&lab);
    println!("{}", lab.status());
    // It ends although all that was begun is open.
    lab.server.shutdown().unwrap();
}

/// Connections whose first bytes never come, and very many small pieces after them.
fn pieces_out_of_order(lab: &Lab) {
    let opened = beside(lab, "pieces out of order on 100 connections", 200 << 20, |stranger, _| {
        let all: Vec<Known> =
            (0..100).filter_map(|number| stranger.open(address_of(number), number)).collect();
        for round in 0..200u32 {
            for known in &all {
                // One byte of two, backwards from the end of the window.
                let mut piece = *known;
                piece.next = known.next.plus(60_000 - round * 290);
                stranger.send(&stranger.header(&piece, Flags::ACK), b"x");
            }
            hear_all(stranger);
        }
        for known in &all {
            stranger.send(&stranger.header(known, Flags::RST), b"");
        }
        all.len()
    });
    assert!(opened >= 90, "{opened}");
}

/// Clients that ask for much and never read it: together for more than all connections' data may take.
fn whoever_does_not_read(lab: &Lab) {
    beside(lab, "300 clients that read nothing", 3 << 29, |_, _| {
        let mut conns: Vec<_> = (0..300).map(|_| lab.connect()).collect();
        let query = vec!["SELECT REPEAT('x', 1000000)"; 20].join(" UNION ALL ");
        let mut results: Vec<_> = conns.iter_mut().map(|conn| conn.query_iter(&query).unwrap()).collect();
        let mut other = lab.server.connect().unwrap();
        let waiting = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT REPEAT%'";
        // They wait: each has sent what its client's kernel takes, and after more looks at the interface no more.
        let mut clock = lab.connect();
        poll_until("300 that wait", PATIENCE, || {
            let before = lab.unread();
            lab.refresh(&mut clock);
            Ok((before.len() >= 300 && lab.unread() == before).then_some(()))
        })
        .unwrap();
        assert_eq!(query_text(&mut other, waiting).unwrap(), [["300"]]);
        // One of them reads after all, and has it all.
        let last = results.pop().unwrap();
        let lens: Vec<usize> = last.map(|row| mysql::from_row::<String>(row.unwrap()).len()).collect();
        assert_eq!(lens, [1_000_000; 20]);
        let ids = "SELECT id FROM information_schema.processlist WHERE info LIKE 'SELECT REPEAT%'";
        for row in query_text(&mut other, ids).unwrap() {
            other.query_drop(format!("KILL {}", row[0])).unwrap();
        }
        poll_until("the end of those who wait", PATIENCE, || {
            Ok((query_text(&mut other, waiting)? == [["0"]]).then_some(()))
        })
        .unwrap();
        drop(results);
    });
}

/// Clients that log in byte by byte, and do not get to its end.
fn slow_logins(lab: &Lab) {
    beside(lab, "30 logins byte by byte", 64 << 20, |_, _| {
        let connect = || TcpStream::connect((ADDRESS, PORT)).unwrap();
        let mut all: Vec<TcpStream> = (0..30).map(|_| lab.pair.within(Side::Client, connect)).collect();
        for stream in &mut all {
            assert!(stream.read(&mut [0; 200]).unwrap() > 10);
        }
        for step in 0..30u8 {
            for stream in &mut all {
                // Of a packet that is announced with 200 bytes.
                let byte = if step == 0 {
                    200
                } else if step == 3 {
                    1
                } else {
                    0
                };
                stream.write_all(&[byte]).unwrap();
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    });
}

#[test]
fn clients_that_do_not_go_on_do_not_keep_others_from_it() {
    let test = "clients_that_do_not_go_on_do_not_keep_others_from_it";
    let Some(mut lab) = Lab::create(test, &["--max-connections=400", "--back-log=200"]) else { return };
    pieces_out_of_order(&lab);
    slow_logins(&lab);
    whoever_does_not_read(&lab);
    lab.wait_for("connections", |count| count <= 1);
    println!("{}", lab.status());
    // It ends although all that was begun is open.
    lab.server.shutdown().unwrap();
}
