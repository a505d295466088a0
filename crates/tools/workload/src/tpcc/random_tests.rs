use super::*;

#[test]
fn constants_differ_as_the_specification_wants() {
    for seed in 0..500 {
        let constants = Constants::new(seed);
        let delta = constants.last_name_run.abs_diff(constants.last_name_load);
        assert!((65..=119).contains(&delta) && delta != 96 && delta != 112, "{delta}");
        assert_eq!(constants, Constants::new(seed));
    }
}

#[test]
fn last_names_are_made_of_syllables() {
    assert_eq!(last_name(0), "BARBARBAR");
    assert_eq!(last_name(371), "PRICALLYOUGHT");
    assert_eq!(last_name(999), "EINGEINGEING");
}

/// Without the constant, NURand is a bitwise OR of two uniform values: a bit of the first factor's range is set in
/// three of four values. With a range of a power of two its probabilities are known exactly.
#[test]
fn non_uniform_values_have_the_distribution_of_their_definition() {
    let mut random = Rng::with_seed(1);
    const DRAWS: u32 = 200_000;
    let mut bits = [0_u32; 12];
    for _ in 0..DRAWS {
        let value = non_uniform(&mut random, 255, 0, 0, 4095);
        assert!(value <= 4095);
        for (bit, count) in bits.iter_mut().enumerate() {
            *count += value >> bit & 1;
        }
    }
    for (bit, count) in bits.into_iter().enumerate() {
        let expected = if bit < 8 { 0.75 } else { 0.5 };
        let share = f64::from(count) / f64::from(DRAWS);
        assert!((share - expected).abs() < 0.01, "bit {bit}: {share}");
    }
}

#[test]
fn the_constant_moves_the_distribution_round() {
    let draw = |c| {
        let mut random = Rng::with_seed(5);
        (0..1000).map(move |_| non_uniform(&mut random, 1023, c, 1, 3000)).collect::<Vec<_>>()
    };
    for (plain, moved) in draw(0).into_iter().zip(draw(100)) {
        assert!((1..=3000).contains(&plain) && (1..=3000).contains(&moved));
        assert_eq!((plain - 1 + 100) % 3000 + 1, moved);
    }
}

#[test]
fn customers_and_items_are_in_range_and_some_are_hot() {
    let (mut random, constants) = (Rng::with_seed(2), Constants::new(2));
    let mut counts = vec![0_u32; 3001];
    for _ in 0..300_000 {
        counts[customer(&mut random, &constants, 3000) as usize] += 1;
    }
    // Numbers with few bits set are rare, down to one in a million.
    let never = counts[1..].iter().filter(|count| **count == 0).count();
    assert!(never < 150, "{never} of 3000 customers were never drawn");
    counts.sort_unstable();
    // With uniform values the most frequent tenth would get little more than a tenth.
    let hot: u32 = counts[2701..].iter().sum();
    assert!(hot > 90_000, "{hot} of 300000");
    for _ in 0..10_000 {
        assert!((1..=100_000).contains(&item(&mut random, &constants, 100_000)));
    }
}

#[test]
fn the_first_customers_have_all_last_names() {
    let (mut random, constants) = (Rng::with_seed(4), Constants::new(4));
    let names: Vec<_> =
        (1..=1000).map(|number| last_name_load(&mut random, &constants, 3000, number)).collect();
    assert_eq!(names[371], "PRICALLYOUGHT");
    let mut unique = names.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), 1000);
    for _ in 0..1000 {
        assert!(names.contains(&last_name_run(&mut random, &constants, 3000)));
        // A district with few customers has few names, and only those are asked for.
        assert!(names[..60].contains(&last_name_run(&mut random, &constants, 60)));
    }
}

#[test]
fn texts_have_the_lengths_and_marks_of_the_specification() {
    let mut random = Rng::with_seed(6);
    let all: Vec<_> = (0..20_000).map(|_| data(&mut random)).collect();
    assert!(all.iter().all(|data| (26..=50).contains(&data.len())));
    let marked = all.iter().filter(|data| data.contains("ORIGINAL")).count();
    assert!((1_800..2_200).contains(&marked), "{marked}");
    assert_eq!(text(&mut random, 8, 8).len(), 8);
    assert!(zip(&mut random).ends_with("11111") && zip(&mut random).len() == 9);
}

#[test]
fn cents_are_written_as_decimals() {
    for (cents, text) in [(0, "0.00"), (5, "0.05"), (123, "1.23"), (-1000, "-10.00"), (-7, "-0.07")] {
        assert_eq!(decimal(cents), text);
    }
}

#[test]
fn each_deck_has_the_mix() {
    let (mut random, mut deck) = (Rng::with_seed(7), Deck::default());
    for _ in 0..50 {
        let mut counts = [0; 5];
        for _ in 0..23 {
            counts[usize::from(deck.draw(&mut random))] += 1;
        }
        assert_eq!(counts, [10, 10, 1, 1, 1]);
    }
}
