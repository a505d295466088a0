//! Numbered slots that are reused. Each use has another generation, so that an old number finds nothing.

/// A table with a size limit.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    max: u32,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slots<T> {
    pub(crate) fn new(max: u32) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), max }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.max as usize
    }

    /// Index and generation of the new entry; `None` if the table is full.
    pub(crate) fn insert(&mut self, value: T) -> Option<(u32, u32)> {
        if let Some(index) = self.free.pop() {
            let slot = self.slots.get_mut(index as usize)?;
            slot.value = Some(value);
            return Some((index, slot.generation));
        }
        let index = u32::try_from(self.slots.len()).ok().filter(|index| *index < self.max)?;
        if self.slots.len() == self.slots.capacity() {
            // Grows by an eighth instead of doubling: entries are large.
            let more = (self.slots.len() / 8).max(16);
            self.slots.reserve_exact(more.min(self.max as usize - self.slots.len()));
        }
        self.slots.push(Slot { generation: 0, value: Some(value) });
        Some((index, 0))
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let slot = self.slots.get_mut(index as usize)?;
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(value)
    }

    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.value.as_mut()
    }

    /// The generation of the slot's value, or of its next one.
    pub(crate) fn generation(&self, index: u32) -> Option<u32> {
        Some(self.slots.get(index as usize)?.generation)
    }

    /// Allocated slots, used or not.
    pub(crate) fn places(&self) -> usize {
        self.slots.capacity()
    }

    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        let used = |(index, slot): (usize, &Slot<T>)| slot.value.is_some().then_some(index as u32);
        self.slots.iter().enumerate().filter_map(used)
    }
}
