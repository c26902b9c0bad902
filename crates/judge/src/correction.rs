//! Correction for the number of points. Without it, five of a hundred equal points would differ "at 5 %" by chance.

/// Returns the Benjamini-Hochberg adjusted p values, in input order. If differences are reported for adjusted values up
/// to 5 %, at most 5 % of the reported ones are false.
pub fn adjust_p_values(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&left, &right| p[left].total_cmp(&p[right]));
    let mut adjusted = vec![1.0; p.len()];
    let mut least = 1.0_f64;
    for (rank, &at) in order.iter().enumerate().rev() {
        least = least.min(p[at] * p.len() as f64 / (rank + 1) as f64);
        adjusted[at] = least;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::adjust_p_values;

    #[test]
    fn small_cases_by_hand() {
        assert_eq!(adjust_p_values(&[]), [] as [f64; 0]);
        assert_eq!(adjust_p_values(&[0.04]), [0.04]);
        // 0.03 × 2 / 1 = 0.06 exceeds 0.04 × 2 / 2 = 0.04, so both values become 0.04.
        assert_eq!(adjust_p_values(&[0.04, 0.03]), [0.04, 0.04]);
        assert_eq!(
            adjust_p_values(&[0.01, 0.9, 0.9, 0.9]),
            [0.04, 0.9, 0.9, 0.9]
        );
    }
}
