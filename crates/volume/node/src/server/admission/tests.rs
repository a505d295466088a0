use super::*;
use redoubt_transport::{Identity, Written};
use std::io::Result as IoResult;
use std::sync::atomic::{AtomicBool, Ordering};

/// Only records whether it was ended.
#[derive(Debug, Default)]
struct Dummy(AtomicBool);

impl Connection for Dummy {
    fn read(&self, _: &mut [u8]) -> IoResult<usize> {
        Ok(0)
    }
    fn write_all(&self, _: &[u8]) -> IoResult<()> {
        Ok(())
    }
    fn write_now(&self, _: &[u8]) -> IoResult<Written> {
        Ok(Written::All)
    }
    fn shutdown(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
    fn set_read_timeout(&self, _: Option<Duration>) -> IoResult<()> {
        Ok(())
    }
    fn set_write_timeout(&self, _: Option<Duration>) -> IoResult<()> {
        Ok(())
    }
    fn set_deadline(&self, _: Option<Duration>) -> IoResult<()> {
        Ok(())
    }
    fn peer(&self) -> &str {
        "dummy"
    }
    fn identity(&self) -> &Identity {
        &Identity::Unproven
    }
}

fn volume(name: &str) -> Purpose {
    Purpose::Volume(name.to_owned())
}

fn control_of(name: &str) -> Purpose {
    Purpose::control(&Identity::Volume(name.to_owned()))
}

fn enter(admission: &Admission) -> (Arc<Dummy>, Arc<dyn Connection>, Present<'_>) {
    let dummy = Arc::new(Dummy::default());
    let connection: Arc<dyn Connection> = Arc::<Dummy>::clone(&dummy);
    let arrived = admission.arrive();
    let present = admission.enter(arrived, Ender::Connection(Arc::clone(&connection))).unwrap();
    (dummy, connection, present)
}

#[test]
fn who_came_last_is_not_pushed_out_by_those_before_whose_threads_run_later() {
    let admission = Admission::new(ConnectionLimits { greeting: 1, ..ConnectionLimits::default() });
    let before = admission.arrive();
    let (last, connection, present) = enter(&admission);
    let dummy = Arc::new(Dummy::default());
    let _before = admission.enter(before, Ender::Connection(Arc::<Dummy>::clone(&dummy))).unwrap();
    assert!(dummy.0.load(Ordering::SeqCst));
    assert!(!last.0.load(Ordering::SeqCst));
    present.admit(&connection, volume("v")).unwrap();
}

#[test]
fn the_longest_greeting_one_makes_room_and_those_admitted_stay() {
    let limits = ConnectionLimits { greeting: 2, ..ConnectionLimits::default() };
    let admission = Admission::new(limits);
    let (inside, connection, present) = enter(&admission);
    present.admit(&connection, volume("v")).unwrap();
    let all: Vec<_> = (0..5).map(|_| enter(&admission)).collect();
    let ended: Vec<_> = all.iter().map(|(dummy, ..)| dummy.0.load(Ordering::SeqCst)).collect();
    assert_eq!(ended, [true, true, true, false, false]);
    assert!(all[0].2.admit(&all[0].1, volume("v")).unwrap_err().contains("too many new"));
    all[4].2.admit(&all[4].1, volume("v")).unwrap();
    assert!(!inside.0.load(Ordering::SeqCst));
    assert_eq!(admission.counts(), (1, 2));
    drop((present, all));
    assert_eq!(admission.counts(), (0, 0));
}

#[test]
fn one_volume_does_not_use_up_what_all_share() {
    let limits = ConnectionLimits { per_volume: 2, total: 4, ..ConnectionLimits::default() };
    let admission = Admission::new(limits);
    let all: Vec<_> = (0..6).map(|_| enter(&admission)).collect();
    for (_, connection, present) in &all[..2] {
        present.admit(connection, volume("greedy")).unwrap();
    }
    assert!(all[2].2.admit(&all[2].1, volume("greedy")).unwrap_err().contains("volume greedy has its 2"));
    all[3].2.admit(&all[3].1, volume("other")).unwrap();
    // A quarter is for control connections.
    assert!(all[5].2.admit(&all[5].1, volume("third")).unwrap_err().contains("the node has its 3"));
    all[4].2.admit(&all[4].1, control_of("third")).unwrap();
    admission.close();
    assert!(
        all[0].0.0.load(Ordering::SeqCst)
            && admission.enter(admission.arrive(), Ender::Connection(Arc::clone(&all[0].1))).is_none()
    );
}

#[test]
fn control_connections_of_one_volume_leave_room_for_others() {
    let admission =
        Admission::new(ConnectionLimits { total: 1000, greeting: 1000, ..ConnectionLimits::default() });
    let mut admitted = Vec::new();
    let mut admit = |purpose: Purpose| {
        let (_, connection, present) = enter(&admission);
        let result = present.admit(&connection, purpose);
        admitted.push(present);
        result
    };
    for _ in 0..CONTROL_PER_VOLUME {
        admit(control_of("greedy")).unwrap();
    }
    assert!(admit(control_of("greedy")).unwrap_err().contains("volume greedy has its 32"));
    admit(control_of("other")).unwrap();
    // All volumes' certificates together leave a quarter to the administrator.
    let of_volumes = 250 - 62;
    for number in CONTROL_PER_VOLUME + 1..of_volumes {
        admit(control_of(&format!("v{number}"))).unwrap();
    }
    assert!(admit(control_of("one more")).unwrap_err().contains("certificates of volumes has its 188"));
    for _ in of_volumes..250 {
        admit(Purpose::control(&Identity::Administrator)).unwrap();
    }
    assert!(admit(Purpose::control(&Identity::Unproven)).unwrap_err().contains("the command has its 250"));
    // And servers have room.
    admit(volume("greedy")).unwrap();
}
