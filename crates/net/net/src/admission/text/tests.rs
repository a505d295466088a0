use super::*;

fn look(text: &str) -> Text {
    let mut look = Text::new(false);
    look.feed(text.as_bytes());
    look.end();
    look
}

#[test]
fn locks_that_outlive_a_statement_are_seen() {
    for text in [
        "LOCK TABLES t WRITE",
        "lock table t read",
        "/* who: me */ LOCK TABLES t READ",
        "-- a line\n  Lock\n\tTables t read;",
        "# a line\nLOCK TABLES t READ",
        "/*!40000 LOCK TABLES t READ */",
        "/*M!100100 LOCK TABLES t READ */",
        "/*My own*/LOCK/**/TABLES/**/t READ",
        "BEGIN; LOCK TABLES t READ",
        "SELECT 'it''s'; LOCK TABLES t READ",
        "SELECT 'a\\'b'; LOCK TABLES t READ",
        "SELECT 2*/*c*/3; LOCK TABLES t READ",
        "SELECT \"--\"; LOCK TABLES t READ",
        "FLUSH TABLES WITH READ LOCK",
        "flush local tables t for export",
    ] {
        assert_eq!(look(text).holds(), TABLES, "{text}");
    }
    for text in [
        "SELECT GET_LOCK('a', 10)",
        "do get_lock ('a',1)",
        "SELECT 'a#b', `GET_LOCK`('a', 1)",
        "PREPARE s FROM 'SELECT GET_LOCK(1,2)'",
        "PREPARE s FROM 'LOCK TABLES t READ'",
        "PREPARE s FROM @text",
        "EXECUTE IMMEDIATE @text",
        "EXECUTE IMMEDIATE 'BACKUP STAGE START'",
        "BACKUP STAGE START",
        "BACKUP LOCK t",
        "HANDLER t OPEN",
        "LOCK INSTANCE FOR BACKUP",
        "SELECT service_get_write_locks('n', 'l', 1)",
        "\x01\x01\x00 SELECT 1",
    ] {
        assert_eq!(look(text).holds() & SESSION, SESSION, "{text}");
    }
}

#[test]
fn other_statements_hold_nothing() {
    for text in [
        "SELECT * FROM t FOR UPDATE",
        "SELECT * FROM t LOCK IN SHARE MODE",
        "INSERT INTO t VALUES ('; lock tables t write')",
        "INSERT INTO t VALUES ('it\\'s; lock tables t write')",
        "SELECT 1 -- ; lock tables t",
        "/* ; lock tables t */ SELECT 1",
        "ALTER TABLE t ADD c INT, LOCK=NONE",
        "EXECUTE s USING @a, @b",
        "FLUSH LOGS",
        "UNLOCK TABLES",
        "SELECT GET_LOCKS, MY_GET_LOCK, IS_FREE_LOCK('a'), RELEASE_LOCK('a')",
        "\x00\x01SELECT 1",
        "",
    ] {
        assert_eq!(look(text).holds(), 0, "{text}");
    }
}

#[test]
fn what_need_not_wait_is_known() {
    for text in [
        "KILL 5",
        "show processlist",
        "UNLOCK TABLES;",
        " commit",
        "XA COMMIT 'a'",
        "use `d`",
        "select 1",
        "/* a driver (1.2) */ SELECT @@max_allowed_packet, @@session.wait_timeout AS `from`;",
        "SELECT 'from t (a)'",
        "SET NAMES utf8mb4",
        "set autocommit=0, sql_mode='STRICT_TRANS_TABLES', @a = @@version",
    ] {
        assert!(look(text).is_free(), "{text}");
    }
    for text in [
        "SELECT * FROM t",
        "SELECT 1 UNION TABLE t",
        "SELECT NEXT VALUE FOR s",
        "SELECT f()",
        "SELECT 1; SELECT 2",
        "SELECT /*! a FROM t */",
        "SET @a = (SELECT MAX(a) FROM t FOR UPDATE)",
        "SET @a = f()",
        "SET STATEMENT max_statement_time=1 FOR UPDATE t SET a = 1",
        "SET STATEMENT max_statement_time=1 f",
        "XA START 'a'",
        "XA BEGIN 'a'",
        "KILL 5; UPDATE t SET a = 1",
        "BEGIN",
        "KILL '",
        "",
        "SHOWS",
    ] {
        assert!(!look(text).is_free(), "{text}");
    }
    assert!(look("UNLOCK TABLES").is_unlock());
    assert!(!look("UNLOCK TABLES; LOCK TABLES t READ").is_unlock());
}

#[test]
fn what_leaves_nothing_open_when_it_fails_is_known() {
    for text in
        ["INSERT INTO t VALUES (1)", "(SELECT 1)", "set names utf8", "LOAD DATA INFILE 'x' INTO TABLE t;"]
    {
        assert!(look(text).is_simple(), "{text}");
    }
    for text in ["CALL p()", "BEGIN; INSERT INTO t VALUES (1)", "EXECUTE s", "SET STATEMENT a=1 FOR CALL p()"]
    {
        assert!(!look(text).is_simple(), "{text}");
    }
}

#[test]
fn backslashes_count_where_the_server_says_so() {
    let text = b"SELECT 'a\\'; LOCK TABLES t READ; -- '";
    let holds = |no_backslash_escapes| {
        let mut look = Text::new(no_backslash_escapes);
        look.feed(text);
        look.end();
        look.holds()
    };
    assert_eq!((holds(true), holds(false)), (TABLES, 0));
}

#[test]
fn pieces_make_no_difference() {
    let words = [
        "LOCK", "TABLES", " ", ";", "'", "\\", "/*", "*/", "/*!", "--", "\n", "#", "GET_LOCK", "(", "`",
        "PREPARE", "FROM", "@", "XA", "COMMIT", "UNLOCK", "SELECT", "M", "!", "5",
    ];
    let mut rng = fastrand::Rng::with_seed(11);
    for _ in 0..20_000 {
        let text: String = (0..rng.usize(0..12)).map(|_| words[rng.usize(..words.len())]).collect();
        let whole = look(&text);
        let mut pieces = Text::new(false);
        text.as_bytes().chunks(rng.usize(1..4)).for_each(|piece| pieces.feed(piece));
        pieces.end();
        let verdict = |look: &Text| (look.holds(), look.is_simple(), look.is_free(), look.is_unlock());
        assert_eq!(verdict(&whole), verdict(&pieces), "{text}");
    }
}
