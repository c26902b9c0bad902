//! Any text is a quantity or is refused. A quantity that was read must print as text that reads back the same.
use std::fmt::{Debug, Display};
use std::str::FromStr;

use tonnage_units::quantity::human;
use tonnage_units::{Bytes, BytesPerSecond, Count, Error, Fraction, Nanos, PerSecond, number_list};

fn check<T>(text: &str) -> Option<T>
where
    T: FromStr<Err = Error> + Display + Debug + PartialEq,
{
    match text.parse::<T>() {
        Ok(value) => {
            let printed = value.to_string();
            assert_eq!(
                printed.parse::<T>().as_ref().ok(),
                Some(&value),
                "{printed}"
            );
            Some(value)
        }
        Err(error) => {
            assert_eq!(error.exit_code(), 2, "{error}");
            None
        }
    }
}

pub fn try_input(input: &[u8]) {
    let text = crate::text(input);
    if let Some(bytes) = check::<Bytes>(text) {
        human::exact_size(bytes.0);
        human::size(bytes.0);
        human::bytes(bytes.0 as f64);
    }
    if let Some(nanos) = check::<Nanos>(text) {
        human::exact_duration(nanos.0);
        human::seconds(nanos.0);
        human::duration(nanos.0 as f64);
    }
    if let Some(count) = check::<Count>(text) {
        human::thousandths(count.0);
        human::number(count.0 as f64);
    }
    if let Some(rate) = check::<PerSecond>(text) {
        human::rate(rate.0);
    }
    if let Some(bandwidth) = check::<BytesPerSecond>(text) {
        human::bandwidth(bandwidth.0);
    }
    if let Some(fraction) = check::<Fraction>(text) {
        human::percent(fraction.0);
        human::whole_percent(fraction.0);
    }
    if let Ok(mut list) = number_list::parse(text) {
        let printed = number_list::format(&list);
        list.sort_unstable();
        list.dedup();
        assert_eq!(number_list::parse(&printed).ok(), Some(list), "{printed}");
    }
}
