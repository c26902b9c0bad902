//! Correction for multiple points: among a hundred equal points, five differ "at 5 %" by chance.

/// Benjamini-Hochberg adjusted p values, in input order. If decisions use a 5 % level on these, at most 5 % of the
/// reported differences are false.
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
        // 0.03 × 2 / 1 is above 0.04 × 2 / 2, so both get the latter.
        assert_eq!(adjust_p_values(&[0.04, 0.03]), [0.04, 0.04]);
        assert_eq!(
            adjust_p_values(&[0.01, 0.9, 0.9, 0.9]),
            [0.04, 0.9, 0.9, 0.9]
        );
    }
}
