//! Order of the points in one of several repetitions of a plan. It depends only on the plan and the repetition's
//! number, so all ranks have the same order.

use tonnage_engine::pattern::{GOLDEN, mix_bits};

use crate::expand::Planned;

/// Shuffles the points of a repetition. Points that depend on data left by earlier points, such as files, keep their
/// positions in the plan.
pub fn shuffled(points: Vec<Planned>, repetition: u32) -> Vec<Planned> {
    let mut places: Vec<usize> = (0..points.len()).collect();
    let mut free: Vec<usize> = places
        .iter()
        .copied()
        .filter(|&at| !points[at].point.any().depends_on_earlier_points())
        .collect();
    let taken = free.clone();
    let mut state = mix_bits(GOLDEN.wrapping_mul(u64::from(repetition) + 1));
    // The Fisher-Yates shuffle makes every order equally likely.
    for left in (1..free.len()).rev() {
        state = state.wrapping_add(GOLDEN);
        let drawn = mix_bits(state) % (left as u64 + 1);
        free.swap(left, drawn as usize);
    }
    for (place, from) in taken.into_iter().zip(free) {
        places[place] = from;
    }
    let mut points: Vec<Option<Planned>> = points.into_iter().map(Some).collect();
    places
        .into_iter()
        .filter_map(|from| points[from].take())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Plan;
    use crate::fixture::LISTS;

    fn points(text: &str) -> Vec<Planned> {
        let plan = Plan::from_toml(text, "test").unwrap();
        plan.points(2, &LISTS).unwrap()
    }

    fn names(points: &[Planned]) -> Vec<String> {
        points
            .iter()
            .map(|planned| planned.point.any().name())
            .collect()
    }

    const TRANSFERS: &str =
        "name = 'x'\n[[transfer]]\nengine = 'shm'\nop = 'write'\nsizes = '8..1M'\n";
    const FILES: &str =
        "[[file]]\nengine = 'posix'\npath = 't'\nblock = '1M'\ntransfer = '4k,8k'\n";

    #[test]
    fn each_repetition_has_an_order_of_its_own_with_all_points() {
        let plain = points(TRANSFERS);
        let [first, again, second] =
            [0, 0, 1].map(|repetition| names(&shuffled(plain.clone(), repetition)));
        assert_eq!(first, again);
        assert_ne!(first, second);
        assert_ne!(first, names(&plain));
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        assert_eq!(sorted(first), sorted(names(&plain)));
        assert_eq!(shuffled(Vec::new(), 3), []);
    }

    #[test]
    fn every_point_comes_to_every_position() {
        let plain = points(TRANSFERS);
        let count = plain.len();
        let mut seen = vec![vec![false; count]; count];
        let order = names(&plain);
        for repetition in 0..400 {
            for (at, name) in names(&shuffled(plain.clone(), repetition))
                .iter()
                .enumerate()
            {
                let from = order.iter().position(|known| known == name).unwrap();
                seen[from][at] = true;
            }
        }
        assert!(seen.iter().flatten().all(|seen| *seen));
    }

    #[test]
    fn files_keep_their_positions_in_the_plan() {
        let plain = points(&format!(
            "{TRANSFERS}{FILES}{}",
            FILES.replace("'t'", "'u'")
        ));
        let is_file = |planned: &Planned| planned.point.any().depends_on_earlier_points();
        let files = |points: &[Planned]| -> Vec<(usize, String)> {
            let kept = points
                .iter()
                .enumerate()
                .filter(|(_, planned)| is_file(planned));
            kept.map(|(at, planned)| (at, planned.point.any().name()))
                .collect()
        };
        assert_eq!(files(&plain).len(), 4);
        let drawn = shuffled(plain.clone(), 0);
        assert_eq!(files(&plain), files(&drawn));
        assert_ne!(names(&plain), names(&drawn));
    }
}
