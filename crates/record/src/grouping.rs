//! Groups equal values that many ranks report, so that each value is listed once.

/// Lists each distinct value (answer) with all ranks or hosts (sources) that reported it, in order of first appearance.
pub fn by_answer<S, A: PartialEq>(each: impl Iterator<Item = (S, A)>) -> Vec<(A, Vec<S>)> {
    let mut groups: Vec<(A, Vec<S>)> = Vec::new();
    for (source, answer) in each {
        match groups.iter_mut().find(|(known, _)| *known == answer) {
            Some((_, sources)) => sources.push(source),
            None => groups.push((answer, vec![source])),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    #[test]
    fn sources_of_one_answer_are_together() {
        let all = [(0, "a"), (1, "b"), (2, "a")];
        let groups = super::by_answer(all.into_iter());
        assert_eq!(groups, [("a", vec![0, 2]), ("b", vec![1])]);
    }
}
