//! Points copied from records into a plan, so that exactly the same points are measured again.
//!
//! In a plan file, each is a `[[point]]` table with the point's JSON and a checksum. A point changed by hand is
//! refused, because it would skip the checks that experiments go through.

use crate::refuse::usage_error;
use serde::{Deserialize, Serialize};
use tonnage_units::{Error, Result};

use crate::kinds::Point;

/// A point copied from a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GivenPoint {
    /// The point's JSON, with its kind.
    pub json: String,
    /// CRC-32 of the JSON in eight hexadecimal digits.
    pub checksum: String,
}

impl GivenPoint {
    /// Creates the entry for a recorded point, with its checksum.
    pub fn new(json: String) -> Self {
        let checksum = checksum(&json);
        Self { json, checksum }
    }

    /// Reads the point.
    pub fn point(&self) -> Result<Point> {
        if checksum(&self.json) != self.checksum {
            return usage_error(
                "the point was changed by hand, and a [[point]] is measured only as its record has it: copy it again, \
                 or write an experiment",
            );
        }
        serde_json::from_str(&self.json)
            .map_err(|error| Error::Usage(format!("the point is not of this version: {error}")))
    }

    /// Number of ranks of the point; `None` if its JSON has none.
    pub fn ranks(&self) -> Option<u32> {
        let value: serde_json::Value = serde_json::from_str(&self.json).ok()?;
        value.get("ranks")?.as_u64()?.try_into().ok()
    }
}

/// CRC-32 of a point's JSON in eight hexadecimal digits.
pub fn checksum(json: &str) -> String {
    format!("{:08x}", crc32fast::hash(json.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Plan;
    use crate::fixture::{LISTS, Refused};

    fn given() -> GivenPoint {
        let text = "name = 'x'\n[[transfer]]\nengine = 'shm'\nop = 'write'\nsizes = 64\n";
        let plan = Plan::from_toml(text, "test").unwrap();
        let planned = plan.points(2, &LISTS).unwrap();
        GivenPoint::new(serde_json::to_string(&planned[0].point).unwrap())
    }

    #[test]
    fn a_given_point_reads_back_and_is_measured_unchanged() {
        let plan = Plan {
            name: "again".into(),
            ranks: Some(2),
            given: vec![given()],
            ..Plan::default()
        };
        let text = plan.to_toml().unwrap();
        let read = Plan::from_toml(&text, "test").unwrap();
        assert_eq!(read, plan, "{text}");
        let points = read.points(2, &LISTS).unwrap();
        assert_eq!(points[0].point, given().point().unwrap());
        read.points(3, &LISTS)
            .refused("of 2 ranks, and the run has 3");
        let message = read.clone().scale(2.0, 2).unwrap_err().to_string();
        assert!(message.contains("--scale cannot change"), "{message}");
    }

    #[test]
    fn a_changed_point_is_refused() {
        let mut changed = given();
        changed.json = changed.json.replace("\"ranks\":2", "\"ranks\":0");
        assert_eq!(changed.point().unwrap_err().exit_code(), 2);
        let other = GivenPoint::new(r#"{"kind":"transfer"}"#.into());
        other.point().refused("not of this version");
    }
}
