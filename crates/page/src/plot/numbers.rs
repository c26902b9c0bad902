//! Numbers the plots of a page. The number is part of the IDs of a plot's title and description.

/// Counter for the plots on a page.
#[derive(Debug, Default)]
pub(crate) struct Numbers(usize);

impl Numbers {
    /// The number of the next plot.
    pub(crate) fn next(&mut self) -> usize {
        self.0 += 1;
        self.0
    }
}
