use super::*;

#[test]
fn ids_are_special_in_the_middle() {
    let mut random = Rng::with_seed(1);
    const DRAWS: u32 = 100_000;
    let drawn: Vec<u32> = (0..DRAWS).map(|_| special(&mut random, 10_000)).collect();
    assert!(drawn.iter().all(|id| (1..=10_000).contains(id)));
    let share =
        |low, high| drawn.iter().filter(|id| (low..=high).contains(*id)).count() as f64 / f64::from(DRAWS);
    // Three quarters in the middle hundredth, and the few of the others that fall there.
    assert!((0.75..0.78).contains(&share(4951, 5050)), "{}", share(4951, 5050));
    // The mean of twelve has a standard deviation of a twelfth: nearly nothing in the outer quarters.
    assert!(share(1, 2500) + share(7501, 10_000) < 0.002);
    // And the middle itself is even.
    assert!((share(4951, 5000) - share(5001, 5050)).abs() < 0.01);
}

#[test]
fn texts_fill_their_columns() {
    let mut random = Rng::with_seed(1);
    assert_eq!(groups(&mut random, 10).len(), 119);
    assert_eq!(groups(&mut random, 5).len(), 59);
}

#[test]
fn small_tables_have_ids_too() {
    let mut random = Rng::with_seed(1);
    assert!((0..1000).all(|_| (1..=3).contains(&special(&mut random, 3))));
}
