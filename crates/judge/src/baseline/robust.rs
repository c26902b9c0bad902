//! Centre and spread that tolerate outliers.

pub(crate) use tonnage_record::spread::median;

/// Standard deviations per MAD of a normal distribution.
pub(crate) const SIGMAS_OF_MAD: f64 = 1.4826;

/// Median absolute deviation; 0 without values.
pub(crate) fn median_absolute_deviation(values: &[f64]) -> f64 {
    let Some(centre) = median(values) else {
        return 0.0;
    };
    let distances: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
    median(&distances).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_outlier_of_five_moves_neither() {
        assert_eq!(median(&[3.0, 1.0, 2.0, 5.0, 4.0]), Some(3.0));
        assert_eq!(median(&[3.0, 1.0, 2.0, 5.0, 4e9]), Some(3.0));
        assert_eq!(median(&[1.0, 2.0]), Some(1.5));
        assert_eq!(median(&[]), None);
        assert_eq!(median_absolute_deviation(&[3.0, 1.0, 2.0, 5.0, 4e9]), 2.0);
        assert_eq!(median_absolute_deviation(&[7.0]), 0.0);
        assert_eq!(median_absolute_deviation(&[]), 0.0);
    }
}
