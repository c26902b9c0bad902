//! A table of numbered values. Numbers of removed values are reused.

pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.places[number as usize] = Some(value);
                number
            }
            None => {
                self.places.push(Some(value));
                (self.places.len() - 1) as u32
            }
        }
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let taken = self.places.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(taken)
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.places.get(number as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.places.get_mut(number as usize)?.as_mut()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }

    /// Number of values in the table.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_reused_and_values_stay_where_they_are() {
        let mut slab = Slab::new();
        let numbers = ["a", "b", "c"].map(|value| slab.insert(value));
        assert_eq!(numbers, [0, 1, 2]);
        assert_eq!(slab.remove(1), Some("b"));
        assert_eq!(slab.remove(1), None);
        assert_eq!(
            (slab.get(1), slab.get(2), slab.len()),
            (None, Some(&"c"), 2)
        );
        assert_eq!(slab.insert("d"), 1);
        *slab.get_mut(0).unwrap() = "e";
        assert!(slab.values_mut().map(|value| *value).eq(["e", "d", "c"]));
        assert_eq!(slab.remove(9), None);
    }
}
