//! Finds values with which a search can begin, and combines the refusals into one error if there are none.

use super::point::TunePoint;
use tonnage_units::{Error, Result};

/// A refused value of a dimension, written as on a command line, and the reason.
pub type RefusedValue = (String, Error);

/// Finds values that `admits` accepts. Without this, one refused value would end the search of all options.
///
/// Tries the point's own start values first. Otherwise, each dimension takes its first accepted value. A value is tried
/// both with the other dimensions' current values and with the other searched dimensions at their defaults.
pub fn find_accepted_start<E>(
    point: &TunePoint,
    admits: &mut impl FnMut(&[usize]) -> Result<Result<()>, E>,
) -> Result<Result<Vec<usize>, Vec<RefusedValue>>, E> {
    let mut values = point.start_values();
    if admits(&values)?.is_ok() {
        return Ok(Ok(values));
    }
    let many = |at: usize| point.dimensions[at].values.len() > 1;
    let alone = (0..values.len()).map(|at| if many(at) { usize::MAX } else { 0 });
    let alone: Vec<usize> = alone.collect();
    for at in (0..values.len()).filter(|&at| many(at)) {
        let of = &point.dimensions[at].values;
        let from_start = (values[at]..of.len()).chain(0..values[at]);
        let (mut refused, mut found) = (Vec::new(), None);
        for value in from_start {
            let with = |others: &[usize]| {
                let mut chosen = others.to_vec();
                chosen[at] = value;
                chosen
            };
            if admits(&with(&values))?.is_ok() {
                return Ok(Ok(with(&values)));
            }
            match admits(&with(&alone))? {
                Ok(()) => {
                    found = Some(value);
                    break;
                }
                Err(why) => refused.push((format_value(&of[value]), why)),
            }
        }
        match found {
            Some(value) => values[at] = value,
            None => return Ok(Err(refused)),
        }
    }
    Ok(match admits(&values)? {
        Ok(()) => Ok(values),
        Err(why) => Err(vec![(String::new(), why)]),
    })
}

/// Returns a value as a command line writes it.
pub fn format_value(value: &[String]) -> String {
    match value {
        [] => "default".to_owned(),
        words => words.join(" "),
    }
}

/// Combines all refusals into one error that names each reason once. If there is only one reason, it is the whole
/// error.
pub fn all_refused_error(refused: &[RefusedValue]) -> Error {
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    for (value, error) in refused {
        let why = error.to_string();
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, values)) => values.push(value),
            None => reasons.push((why, vec![value])),
        }
    }
    let why = match &reasons[..] {
        [(why, _)] => why.clone(),
        _ => {
            let each = reasons
                .iter()
                .map(|(why, values)| format!("{} ({why})", values.join(", ")));
            let each: Vec<String> = each.collect();
            format!("every candidate was refused: {}", each.join("; "))
        }
    };
    match refused.first().map(|(_, error)| error) {
        Some(Error::Unavailable { what, why, how }) if reasons.len() == 1 => Error::Unavailable {
            what: what.clone(),
            why: why.clone(),
            how: how.clone(),
        },
        Some(Error::Unavailable { .. }) => Error::Unavailable {
            what: "the search".into(),
            why,
            how: "Give options that this machine supports".into(),
        },
        Some(Error::Usage(_)) => Error::Usage(why),
        _ => Error::Failed(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refuse::usage_error;

    fn point() -> TunePoint {
        let text = "name = 'p'\n[[tune]]\nengine = 'shm'\nop = 'write'\nsizes = 8\ndepth = [1, 2, 3]\nqueue-pairs = [1, 2]";
        let plan = crate::Plan::from_toml(text, "p").unwrap();
        let points = plan.points(2, &crate::fixture::LISTS).unwrap();
        match points.into_iter().next().unwrap().point {
            crate::Point::Tune(point) => point,
            other => unreachable!("{other:?}"),
        }
    }

    fn found(admitted: impl Fn(&[usize]) -> bool) -> Result<Vec<usize>, Vec<RefusedValue>> {
        let mut admits = |values: &[usize]| {
            Ok::<_, ()>(match admitted(values) {
                true => Ok(()),
                false => usage_error(format!("{values:?}")),
            })
        };
        find_accepted_start(&point(), &mut admits).unwrap()
    }

    #[test]
    fn a_search_begins_where_every_option_has_a_value() {
        let found = |admitted: fn(&[usize]) -> bool| found(admitted).unwrap()[..2].to_vec();
        assert_eq!(found(|_| true), [0, 0]);
        assert_eq!(found(|values| values[0] > 1), [2, 0]);
        assert_eq!(found(|values| values[1] > 0), [0, 1]);
        assert_eq!(found(|values| values[0] > 0 && values[1] > 0), [1, 1]);
    }

    #[test]
    fn an_option_without_a_value_is_the_reason() {
        let refused = found(|values| values[1] > 1).unwrap_err();
        assert_eq!(refused.len(), 2);
        assert!(
            refused
                .iter()
                .all(|(value, _)| value.starts_with("--queue-pairs"))
        );
    }

    #[test]
    fn a_common_reason_is_printed_once_and_keeps_its_kind() {
        let refused = |why: &[&str]| -> Vec<RefusedValue> {
            let each = why.iter().enumerate();
            each.map(|(at, why)| {
                (
                    format!("--queue-pairs {at}"),
                    Error::Usage((*why).to_owned()),
                )
            })
            .collect()
        };
        let said = |why: &[&str]| all_refused_error(&refused(why)).to_string();
        assert_eq!(said(&["no", "no"]), "no");
        assert_eq!(
            said(&["no", "never", "no"]),
            "every candidate was refused: --queue-pairs 0, --queue-pairs 2 (no); --queue-pairs 1 (never)"
        );
        let lacks = || Error::Unavailable {
            what: "w".into(),
            why: "y".into(),
            how: "h".into(),
        };
        let error = all_refused_error(&[("a".to_owned(), lacks()), ("b".to_owned(), lacks())]);
        assert_eq!(error.to_string(), lacks().to_string());
        assert!(matches!(error, Error::Unavailable { .. }));
    }
}
