//! The page over real connections, without a node behind it: what it answers, to whom, and that clients who are slow,
//! many or hostile do not keep others from it for long.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use redoubt_statuspage::{PageSettings, Running, SAMPLE_INTERVAL, StatusPage, StatusPageError};
use redoubt_test_support::wait::GUARD;
use redoubt_wire::control::{NodeStatus, VolumeStatus};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[path = "support/browser.rs"]
mod browser;
#[path = "support/http.rs"]
mod http;

const HOSTILE: &str = "</script><b id=\"injected\">x</b>'\"&";

fn status() -> NodeStatus {
    let volume = |name: &str| VolumeStatus {
        name: name.to_owned(),
        state: "waiting".to_owned(),
        reason: HOSTILE.to_owned(),
        attached_by: HOSTILE.to_owned(),
        counters: [(HOSTILE.to_owned(), 5)].into(),
        ..VolumeStatus::default()
    };
    NodeStatus {
        version: "0.0.0".to_owned(),
        listen: "127.0.0.1:7070".to_owned(),
        data_directory: HOSTILE.to_owned(),
        uptime_seconds: 1,
        memory_used_bytes: 3 << 20,
        memory_limit_bytes: 1 << 30,
        volumes: vec![volume(HOSTILE), volume("other")],
        ..NodeStatus::default()
    }
}

/// A page, its address, and how often the state was asked for.
fn page(settings: &PageSettings) -> (Running, SocketAddr, Arc<AtomicU64>) {
    let page = StatusPage::bind(settings).unwrap();
    let (address, asked) = (page.address(), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&asked);
    let source = Arc::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        status()
    });
    (page.start(source).unwrap(), address, asked)
}

fn local() -> PageSettings {
    PageSettings { listen: "127.0.0.1:0".to_owned(), ..PageSettings::default() }
}

fn request(address: SocketAddr, request: &str) -> http::Answer {
    http::exchange(address, request.as_bytes()).unwrap()
}

#[test]
fn every_path_has_its_type_and_the_safe_headers() {
    let (_running, address, _) = page(&local());
    for (path, media_type) in [
        ("/", "text/html"),
        ("/page.js", "text/javascript"),
        ("/common.js", "text/javascript"),
        ("/page.css", "text/css"),
        ("/uplot.js", "text/javascript"),
        ("/uplot.css", "text/css"),
        ("/uplot-license.txt", "text/plain"),
        ("/icon.svg", "image/svg+xml"),
        ("/status.json", "application/json"),
        ("/live.json", "application/json"),
        ("/history.json", "application/json"),
        ("/metrics", "text/plain; version=0.0.4"),
        ("/metrics?a=b", "text/plain; version=0.0.4"),
        ("/healthz", "text/plain"),
        ("/readyz", "text/plain"),
        ("/nothing", "text/plain"),
        ("/../etc/passwd", "text/plain"),
    ] {
        let answer = http::get(address, path);
        let found = !matches!(path, "/nothing" | "/../etc/passwd");
        assert_eq!(answer.status, if found { 200 } else { 404 }, "{path}");
        assert!(answer.headers["content-type"].starts_with(media_type), "{path}: {answer:?}");
        let policy = &answer.headers["content-security-policy"];
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        assert!(!answer.headers.contains_key("access-control-allow-origin"));
        assert!(!answer.body.is_empty());
    }
    let json = http::get(address, "/status.json").json();
    assert_eq!(json["volumes"][0]["name"], HOSTILE);
    let page = http::get(address, "/").text();
    assert!(!page.contains("http://") && !page.contains("https://"), "nothing from elsewhere");
}

/// A page of a node whose volumes are in these states; the state is read again for each sample.
fn page_of(state: &Arc<std::sync::Mutex<&'static str>>) -> (Running, SocketAddr) {
    let page = StatusPage::bind(&local()).unwrap();
    let (address, state) = (page.address(), Arc::clone(state));
    let source = Arc::new(move || {
        let state = (*state.lock().unwrap()).to_owned();
        let volume = VolumeStatus { name: "shop".to_owned(), state, ..VolumeStatus::default() };
        NodeStatus { volumes: vec![volume], ..NodeStatus::default() }
    });
    (page.start(source).unwrap(), address)
}

#[test]
fn readyz_fails_while_a_volume_is_recovering_healthz_passes() {
    let state = Arc::new(std::sync::Mutex::new("recovering"));
    let (_running, address) = page_of(&state);
    let unready = http::get(address, "/readyz");
    assert_eq!((unready.status, unready.text().contains("shop")), (503, true), "{unready:?}");
    assert!(unready.headers["content-type"].starts_with("text/plain"));
    assert_eq!(http::get(address, "/healthz").status, 200);

    // A stopped volume is reported by alerts; a restart of the node would interrupt the others.
    *state.lock().unwrap() = "stopped";
    let guard = Instant::now() + Duration::from_secs(120);
    while http::get(address, "/readyz").status != 200 {
        assert!(Instant::now() < guard, "the next sample does not make the node ready");
    }
    assert_eq!(http::get(address, "/readyz").text(), "ok\n");
}

#[test]
fn healthz_fails_when_the_node_does_not_report_its_state() {
    // The source blocks after its first answer, as a node does that hangs on a lock.
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let (receiver, asked) = (std::sync::Mutex::new(receiver), AtomicU64::new(0));
    let page = StatusPage::bind(&local()).unwrap();
    let address = page.address();
    let source = Arc::new(move || {
        if asked.fetch_add(1, Ordering::Relaxed) > 0 {
            let _ = receiver.lock().unwrap().recv();
        }
        status()
    });
    let running = page.start(source).unwrap();
    assert_eq!(http::get(address, "/healthz").status, 200);
    let guard = Instant::now() + 20 * redoubt_statuspage::health::STALE_AFTER;
    let failed = loop {
        let answer = http::get(address, "/healthz");
        if answer.status != 200 {
            break answer;
        }
        assert!(Instant::now() < guard, "a node that hangs passes");
    };
    assert_eq!(failed.status, 503);
    assert!(failed.text().contains("has not reported its state"), "{failed:?}");
    assert_eq!(http::get(address, "/readyz").status, 503);
    drop(sender);
    drop(running);
}

#[test]
fn other_methods_and_other_names_are_refused() {
    let named = PageSettings { host_names: vec!["node1.example".to_owned()], ..local() };
    let (_running, address, _) = page(&named);
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"] {
        let answer =
            request(address, &format!("{method} / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        assert_eq!((answer.status, answer.headers["allow"].as_str()), (405, "GET, HEAD"), "{method}");
    }
    let head = request(address, "HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!((head.status, head.body.len()), (200, 0));
    for (host, status) in [
        ("Host: localhost:1\r\n", 200),
        ("Host: node1.example\r\n", 200),
        ("Host: evil.example\r\n", 421),
        ("Host: 127.0.0.1.evil.example\r\n", 421),
        ("", 421),
        ("Host: localhost\r\nHost: evil.example\r\n", 421),
    ] {
        let answer =
            request(address, &format!("GET /status.json HTTP/1.1\r\n{host}Connection: close\r\n\r\n"));
        assert_eq!(answer.status, status, "{host:?}");
        assert_eq!(answer.text().contains("volumes"), status == 200);
    }
}

#[test]
fn an_address_that_others_reach_needs_a_word() {
    let everywhere = PageSettings { listen: "0.0.0.0:0".to_owned(), ..PageSettings::default() };
    let error = StatusPage::bind(&everywhere).unwrap_err();
    assert!(
        matches!(error, StatusPageError::Exposed(..)) && error.to_string().contains("--status-allow-remote")
    );
    assert!(StatusPage::bind(&PageSettings { allow_remote: true, ..everywhere }).is_ok());
    let taken = StatusPage::bind(&local()).unwrap();
    let error =
        StatusPage::bind(&PageSettings { listen: taken.address().to_string(), ..local() }).unwrap_err();
    assert!(error.to_string().contains("--status-listen"), "{error}");
}

#[test]
fn heads_that_are_too_long_or_broken_are_refused() {
    let (_running, address, _) = page(&local());
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    // It may be cut off while it is still being sent.
    if let Ok(answer) = http::exchange(address, long.as_bytes()) {
        assert_eq!(answer.status, 431, "{answer:?}");
    }
    let many = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "A: b\r\n".repeat(100));
    assert_eq!(request(address, &many).status, 431);
    for garbage in ["\u{0}\u{1}\u{2}\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET  \r\n\r\n", "RDBT\r\n\r\n"] {
        if let Ok(answer) = http::exchange(address, garbage.as_bytes()) {
            assert_eq!(answer.status, 400, "{garbage:?}");
        }
    }
    assert_eq!(http::get(address, "/").status, 200);
}

#[test]
fn clients_that_hold_connections_lock_no_probe_out() {
    let (_running, address, _) = page(&local());
    let mut held = Vec::new();
    for _ in 0..10 {
        for _ in 0..32 {
            let mut stream = TcpStream::connect(address).unwrap();
            // It may be the one that is ended.
            let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: local");
            held.push(stream);
        }
        assert_eq!(http::get(address, "/healthz").status, 200);
        assert_eq!(http::get(address, "/metrics").status, 200);
    }
}

#[test]
fn health_checks_answer_under_any_name_and_without_one() {
    let (_running, address, _) = page(&local());
    for path in ["/healthz", "/readyz"] {
        assert_eq!(
            request(address, &format!("GET {path} HTTP/1.1\r\nHost: node1.example.org\r\n\r\n")).status,
            200
        );
        assert_eq!(request(address, &format!("GET {path} HTTP/1.0\r\n\r\n")).status, 200);
    }
    assert_eq!(request(address, "GET /metrics HTTP/1.1\r\nHost: node1.example.org\r\n\r\n").status, 421);
}

#[test]
fn slow_and_many_clients_are_cut_off_and_the_page_is_there_again() {
    let (_running, address, asked) = page(&local());
    let mut clients: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            // The oldest above the limit are closed, perhaps before this.
            let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: local");
            // The page ends it, not this.
            stream.set_read_timeout(Some(GUARD)).unwrap();
            stream
        })
        .collect();
    // All end by themselves: most at once, the others when their time is up.
    let mut bytes = Vec::new();
    for stream in &mut clients {
        match stream.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
        }
    }
    assert_eq!(http::get(address, "/status.json").status, 200);

    let (requests, began) = (AtomicU64::new(0), Instant::now());
    let before = asked.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for path in ["/status.json", "/metrics", "/history.json", "/"] {
            let (requests, asked) = (&requests, &asked);
            scope.spawn(move || {
                // For several samples, and often.
                let mut count = 0;
                while count < 10 || asked.load(Ordering::Relaxed) - before < 3 {
                    assert_eq!(http::get(address, path).status, 200);
                    count += 1;
                }
                requests.fetch_add(count, Ordering::Relaxed);
            });
        }
    });
    let (requests, asked) = (requests.into_inner(), asked.load(Ordering::Relaxed) - before);
    let most = began.elapsed().div_duration_f64(SAMPLE_INTERVAL) as u64 + 2;
    println!("{requests} requests in {:?}, the node was asked {asked} times", began.elapsed());
    assert!(requests >= 40 && asked <= most, "{requests} requests, {asked} times asked");
}

#[test]
fn what_the_node_says_is_text_to_a_browser_and_nothing_is_refused_by_the_policy() {
    let Some(browser) = browser::find("what_the_node_says_is_text_to_a_browser") else { return };
    let (_running, address, _) = page(&local());
    let dom = browser::dom(browser, &format!("http://{address}/"));
    assert!(dom.contains("&lt;b id=\"injected\"&gt;x&lt;/b&gt;"), "{dom}");
    assert!(!dom.contains("<b id="), "{dom}");
    assert_eq!(dom.matches("<canvas").count(), 13, "{dom}");
    assert!(dom.contains("aria-pressed=\"true\""), "two volumes to choose from: {dom}");
    let trouble = dom.split("id=\"trouble\"").nth(1).unwrap().split('>').next().unwrap().to_owned();
    assert!(trouble.contains("hidden"), "{dom}");
}

/// A group whose names are hostile; `at` moves its figures.
fn group(at: u64) -> serde_json::Value {
    let member = |name: &str, is_there: bool| {
        serde_json::json!({
            "name": name, "address": HOSTILE, "client_address": "", "state": if is_there { "Synced" } else { "away" },
            "votes": true, "owns_slots": is_there, "is_there": is_there, "applied": at, "lag": 3,
            "heard_ms": if is_there { None } else { Some(4500) },
        })
    };
    serde_json::json!({
        "group": HOSTILE, "group_id": "some-id", "needed": 2, "present": 2, "epoch": 9, "last_ordered": at * 100,
        "members": [member("db1", true), member("db2", true), member(HOSTILE, false)],
        "servers": [{"server": "10.0.0.1", "name": "db1", "state": "Synced", "error": null}],
        "problems": [HOSTILE],
    })
}

/// A stand-in for the metrics of a group, which `redoubt group status` renders.
fn members_metric(seen: &Result<serde_json::Value, String>) -> String {
    let members = seen.as_ref().ok().and_then(|look| look["members"].as_array().map(Vec::len));
    format!("members {}\n", members.unwrap_or(0))
}

#[test]
fn reports_are_served_as_json_and_as_metrics_and_renewed() {
    let bound = StatusPage::bind(&local()).unwrap();
    let address = bound.address();
    let mut reports = 0;
    let make = move || {
        reports += 1;
        let (json, metrics) = (format!("[{reports}]"), format!("reports {reports}\n"));
        redoubt_statuspage::report::Report { json, metrics }
    };
    let _running = bound.start_reports(make).unwrap();
    let status = http::get(address, "/status.json");
    assert_eq!((status.status, status.headers["content-type"].as_str()), (200, "application/json"));
    let guard = Instant::now() + Duration::from_secs(120);
    while http::get(address, "/metrics").text() == "reports 1\n" {
        assert!(Instant::now() < guard, "the report is not renewed");
    }
    let missing = http::get(address, "/");
    assert!(missing.status == 404 && missing.text().contains("/status.json and /metrics"), "{missing:?}");
}

#[test]
fn the_page_of_a_group_shows_its_members_and_why_nothing_is_known() {
    let bound = StatusPage::bind(&local()).unwrap();
    let address = bound.address();
    let mut looks = 0;
    let look = move || {
        looks += 1;
        Ok(group(looks))
    };
    let _running = bound.start_group(look, members_metric).unwrap();
    for (path, media_type) in [
        ("/", "text/html"),
        ("/group.js", "text/javascript"),
        ("/common.js", "text/javascript"),
        ("/page.css", "text/css"),
        ("/live.json", "application/json"),
        ("/history.json", "application/json"),
        ("/metrics", "text/plain; version=0.0.4"),
    ] {
        let answer = http::get(address, path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.headers["content-type"].starts_with(media_type), "{path}");
    }
    let missing = http::get(address, "/status.json");
    assert!(missing.status == 404 && missing.text().contains("/history.json and /metrics"));
    assert_eq!(http::get(address, "/metrics").text(), "members 3\n");
    let Some(browser) = browser::find("the_page_of_a_group_shows_its_members") else { return };
    let dom = browser::dom(browser, &format!("http://{address}/"));
    assert!(dom.contains("2 of 3") && dom.contains("4 s ago"), "{dom}");
    assert_eq!(dom.matches("<canvas").count(), 4, "{dom}");
    assert!(!dom.contains("<b id="), "{dom}");

    let bound = StatusPage::bind(&local()).unwrap();
    let address = bound.address();
    let nobody = || -> Result<serde_json::Value, String> { Err("nobody answers".to_owned()) };
    let _running = bound.start_group(nobody, members_metric).unwrap();
    assert_eq!(http::get(address, "/metrics").text(), "members 0\n");
    let dom = browser::dom(browser, &format!("http://{address}/"));
    assert!(dom.contains("nobody answers"), "{dom}");
}
