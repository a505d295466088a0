use super::*;

#[test]
fn orders_have_the_shares_of_the_specification() {
    let (mut random, scale) = (Rng::with_seed(1), Scale::new(5));
    let constants = Constants::new(1);
    let (mut lines, mut remote, mut invalid) = (0, 0, 0);
    const ORDERS: u32 = 20_000;
    for _ in 0..ORDERS {
        let order = NewOrder::draw(&mut random, &constants, scale, (3, 1));
        assert!((5..=15).contains(&order.lines.len()));
        lines += order.lines.len() as u32;
        remote += order.lines.iter().filter(|line| line.supply != 3).count();
        invalid += u32::from(order.lines.iter().any(|line| line.item > scale.items));
        assert!(
            order
                .lines
                .iter()
                .all(|line| (1..=5).contains(&line.supply) && (1..=10).contains(&line.quantity))
        );
        // Only the last line may ask for an item that is not there, so that the work is done before it is undone.
        assert!(order.lines.iter().rev().skip(1).all(|line| line.item <= scale.items));
    }
    assert!((9.9..10.1).contains(&(f64::from(lines) / f64::from(ORDERS))), "{lines}");
    let share = remote as f64 / f64::from(lines);
    assert!((0.008..0.012).contains(&share), "{share} of the lines are remote");
    assert!((150..250).contains(&invalid), "{invalid} of {ORDERS} are rolled back");
}

#[test]
fn one_warehouse_has_no_remote_lines() {
    let (mut random, scale) = (Rng::with_seed(1), Scale::new(1));
    for _ in 0..500 {
        let order = NewOrder::draw(&mut random, &Constants::new(1), scale, (1, 1));
        assert!(order.lines.iter().all(|line| line.supply == 1));
    }
}

#[test]
fn stock_is_filled_up_before_it_runs_out() {
    assert_eq!(restock(50, 10), 40);
    assert_eq!(restock(20, 10), 10);
    assert_eq!(restock(19, 10), 100);
    assert_eq!(restock(10, 10), 91);
}

#[test]
fn prices_are_read_exactly() {
    assert_eq!(cents("12.05").unwrap(), 1205);
    assert_eq!(cents("0.99").unwrap(), 99);
    assert!(cents("12").is_err() && cents("1.2").is_err() && cents("x.yz").is_err());
}
