//! Correction for many points: of a hundred equal ones, five differ "at 5 %" by chance.

/// The p values of Benjamini and Hochberg, in the order of those given: deciding at 5 % by these, at most 5 % of the
/// differences that are found are none.
pub fn adjusted(p: &[f64]) -> Vec<f64> {
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
    use super::adjusted;

    #[test]
    fn small_cases_by_hand() {
        assert_eq!(adjusted(&[]), [] as [f64; 0]);
        assert_eq!(adjusted(&[0.04]), [0.04]);
        // 0.03 × 2 / 1 is above 0.04 × 2 / 2, so both have that.
        assert_eq!(adjusted(&[0.04, 0.03]), [0.04, 0.04]);
        assert_eq!(adjusted(&[0.01, 0.9, 0.9, 0.9]), [0.04, 0.9, 0.9, 0.9]);
    }
}
