//! The random values of TPC-C (clauses 2.1.5, 2.1.6 and 4.3.2).

use fastrand::Rng;

/// The run-time constants of NURand (clause 2.1.6.1), drawn once per data set and run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Constants {
    /// For last names while loading.
    pub last_name_load: u32,
    /// For last names during a run.
    pub last_name_run: u32,
    /// For customer numbers.
    pub customer: u32,
    /// For item numbers.
    pub item: u32,
}

impl Constants {
    /// Draws them by seed. The two for last names differ by what the specification allows: 65 to 119, but neither 96
    /// nor 112.
    pub fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed ^ 0x7063_6374);
        let last_name_load = random.u32(0..=255);
        loop {
            let last_name_run = random.u32(0..=255);
            let delta = last_name_run.abs_diff(last_name_load);
            if (65..=119).contains(&delta) && delta != 96 && delta != 112 {
                return Self {
                    last_name_load,
                    last_name_run,
                    customer: random.u32(0..=1023),
                    item: random.u32(0..=8191),
                };
            }
        }
    }
}

/// NURand(A, x, y) with constant C: values of `low..=high`, some of them much more often than others.
pub fn non_uniform(random: &mut Rng, a: u32, c: u32, low: u32, high: u32) -> u32 {
    let mixed = random.u32(0..=a) | random.u32(low..=high);
    mixed.wrapping_add(c) % (high - low + 1) + low
}

/// Customer number of a transaction.
pub fn customer(random: &mut Rng, constants: &Constants, customers: u32) -> u32 {
    non_uniform(random, 1023, constants.customer, 1, customers)
}

/// Item number of an order line.
pub fn item(random: &mut Rng, constants: &Constants, items: u32) -> u32 {
    non_uniform(random, 8191, constants.item, 1, items)
}

/// How many last names there are: 1000, or fewer if there are fewer customers.
fn last_names(customers: u32) -> u32 {
    customers.min(1000)
}

/// Last name a transaction asks for.
pub fn last_name_run(random: &mut Rng, constants: &Constants, customers: u32) -> String {
    last_name(non_uniform(random, 255, constants.last_name_run, 0, last_names(customers) - 1))
}

/// Last name of a new customer: the first 1000 of a district have them all, in order.
pub fn last_name_load(random: &mut Rng, constants: &Constants, customers: u32, customer: u32) -> String {
    let names = last_names(customers);
    if customer <= names {
        return last_name(customer - 1);
    }
    last_name(non_uniform(random, 255, constants.last_name_load, 0, names - 1))
}

/// The last name of a number below 1000: a syllable for each of its three digits.
pub fn last_name(number: u32) -> String {
    const SYLLABLES: [&str; 10] =
        ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
    let syllable = |digit: u32| SYLLABLES.get(digit as usize % 10).copied().unwrap_or_default();
    [number / 100, number / 10, number].map(syllable).concat()
}

/// Letters and digits.
pub fn text(random: &mut Rng, min_len: usize, max_len: usize) -> String {
    let len = random.usize(min_len..=max_len);
    std::iter::repeat_with(|| random.alphanumeric()).take(len).collect()
}

/// Digits.
pub fn digits(random: &mut Rng, len: usize) -> String {
    std::iter::repeat_with(|| random.digit(10)).take(len).collect()
}

/// A zip code: four random digits, then `11111`.
pub fn zip(random: &mut Rng) -> String {
    digits(random, 4) + "11111"
}

/// 26 to 50 letters; in one of ten `ORIGINAL` stands somewhere.
pub fn data(random: &mut Rng) -> String {
    const MARK: &str = "ORIGINAL";
    let mut data = text(random, 26, 50);
    if random.u32(0..10) == 0 {
        let at = random.usize(0..=data.len() - MARK.len());
        data.replace_range(at..at + MARK.len(), MARK);
    }
    data
}

/// Cents as SQL writes them: `12.05`.
pub fn decimal(cents: i64) -> String {
    let sign = if cents < 0 { "-" } else { "" };
    format!("{sign}{}.{:02}", cents.unsigned_abs() / 100, cents.unsigned_abs() % 100)
}

/// The transactions of a terminal, shuffled again when used up (clause 5.2.4.2): ten New-Orders, ten Payments and one
/// of each other kind.
#[derive(Debug, Default)]
pub struct Deck {
    cards: Vec<u8>,
}

impl Deck {
    /// The next card: 0 New-Order, 1 Payment, 2 Order-Status, 3 Delivery, 4 Stock-Level.
    pub fn draw(&mut self, random: &mut Rng) -> u8 {
        if let Some(card) = self.cards.pop() {
            return card;
        }
        self.cards = [[0; 10].as_slice(), &[1; 10], &[2, 3, 4]].concat();
        random.shuffle(&mut self.cards);
        self.cards.pop().unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "random_tests.rs"]
mod tests;
