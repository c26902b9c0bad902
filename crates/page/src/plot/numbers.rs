//! Numbers of plots, by which their titles and descriptions are found.

/// Numbers of plots on a page, in their order.
#[derive(Debug, Default)]
pub(crate) struct Numbers(usize);

impl Numbers {
    /// The number of the next plot.
    pub(crate) fn next(&mut self) -> usize {
        self.0 += 1;
        self.0
    }
}
