use super::*;
use crate::deliveries;

fn outlets() -> Outlets {
    Outlets {
        appliers: Arc::default(),
        commit_order: Arc::default(),
        finished: Arc::default(),
        gate: Arc::default(),
        counters: Arc::default(),
        status: Arc::default(),
        order: Inlet::default(),
        viewed: Box::new(|_| {}),
        balloted: Box::new(|_| {}),
        refused: Box::new(|_, _| {}),
        failed: Box::new(|reason| panic!("{reason}")),
    }
}

fn deliver(outlets: &Outlets, delivery: Delivery) {
    let (to, deliveries) = deliveries::channel(1 << 20);
    to.send(delivery);
    drop(to);
    run(deliveries, outlets);
}

/// Two members without a state requested it from each other, and neither ever answered.
#[test]
fn who_waits_for_a_state_says_at_once_that_it_has_none() {
    let outlets = outlets();
    let request =
        || Delivery::StateRequest { from: MemberId(7), seqno: Seqno(0), request: b"rsync".to_vec() };
    assert!(matches!(outlets.appliers.next(), Ok(Some(Item::Begin))));
    deliver(&outlets, request());
    let said = outlets.order.take_all();
    assert!(
        matches!(
            said.as_slice(),
            [Input::Send(MemberId(7), Frame::StateRefused(Refusal { has_failed: false, .. }))]
        ),
        "{} inputs",
        said.len()
    );
    outlets.appliers.begun(Seqno(0));
    deliver(&outlets, request());
    assert!(outlets.order.take_all().is_empty());
    assert!(matches!(outlets.appliers.next(), Ok(Some(Item::Donate { to: MemberId(7), .. }))));
}
