//! Plots as SVG. Shapes and text carry the meaning, not only colour. Each plot has a description and its numbers as
//! text.
//!
//! | file | draws |
//! | --- | --- |
//! | this | all plots of one configuration, within a limit per page |
//! | `axis`, `chart` | scales; lines over two axes |
//! | `numbers` | numbering of plots |
//! | `groups` | groups of points that form a line |
//! | `sizes` | bandwidth and latency over size |
//! | `distribution` | latencies of single points: percentiles, histograms |
//! | `series` | rates over time, with standstills |
//! | `matrix` | pairs of ranks as a heat map |
//! | `ratios` | ratios of a comparison |

mod axis;
mod chart;
mod distribution;
mod groups;
mod matrix;
mod numbers;
pub(crate) mod ratios;
mod series;
mod sizes;

use maud::{Markup, html};
pub(crate) use numbers::Numbers;
use tonnage_record::Record;
use tonnage_report::layout::Section;

/// Maximum number of configurations with plots. A page with thousands of plots is unusable.
const CONFIGURATIONS_DRAWN_MAX: usize = 100;

/// Plots of a page.
#[derive(Debug)]
pub(crate) struct PagePlots {
    numbers: Numbers,
    configurations: usize,
}

impl PagePlots {
    /// Numbers the plots with `numbers`.
    pub(crate) fn new(numbers: Numbers) -> Self {
        Self {
            numbers,
            configurations: 0,
        }
    }

    /// All plots of one configuration.
    pub(crate) fn draw(&mut self, section: &Section, records: &[Record]) -> Markup {
        self.configurations += 1;
        if self.configurations > CONFIGURATIONS_DRAWN_MAX {
            return html! {
                p { "Not drawn: this page has plots of its first " (CONFIGURATIONS_DRAWN_MAX) " configurations. "
                    "The tables below have all numbers; a report of fewer files draws them." }
            };
        }
        let numbers = &mut self.numbers;
        let groups = groups::groups(records);
        let mut plots: Vec<Markup> = Vec::new();
        if sizes::has_sizes(&groups) {
            plots.extend(sizes::bandwidths(section, &groups, numbers));
            plots.extend(sizes::percentiles(&groups, numbers));
        }
        plots.extend(distribution::distributions(records, numbers));
        plots.extend(series::series(records, numbers));
        plots.extend(matrix::matrices(records, numbers));
        html! { @for plot in &plots { (plot) } }
    }
}
