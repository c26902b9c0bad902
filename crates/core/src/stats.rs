//! Histograms, means and confidence.
