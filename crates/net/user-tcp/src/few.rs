//! A list that is nearly always short, and then allocates no memory.

/// Number of entries without an allocation.
const FEW: usize = 4;

/// A list that is nearly always short, and then allocates no memory.
pub struct Few<T> {
    first: [Option<T>; FEW],
    more: Vec<T>,
}

impl<T: Copy> Few<T> {
    /// Adds an entry.
    pub fn push(&mut self, value: T) {
        match self.first.iter_mut().find(|place| place.is_none()) {
            Some(place) if self.more.is_empty() => *place = Some(value),
            _ => self.more.push(value),
        }
    }

    /// The list is empty.
    pub fn is_empty(&self) -> bool {
        self.first.iter().all(Option::is_none)
    }

    /// The entries, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.first.iter().flatten().chain(&self.more).copied()
    }
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self { first: [const { None }; FEW], more: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_what_it_gets_in_order() {
        for count in [0, 1, FEW, FEW + 1, 10 * FEW] {
            let mut all = Few::default();
            assert!(all.is_empty());
            (0..count).for_each(|number| all.push(number));
            assert_eq!(all.is_empty(), count == 0);
            assert!(all.iter().eq(0..count));
        }
    }
}
