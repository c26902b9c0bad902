//! Names that users choose must appear only as text on the page, never as markup.

use proptest::prelude::*;
use tonnage_record::Record;

use super::page_of;
use super::samples::sweep;
use crate::embed::records_of_page;

/// Records that contain this name wherever a user can choose one.
fn named(name: &str) -> Vec<Record> {
    let mut records = sweep();
    for record in &mut records {
        record.plan = name.to_owned();
        record.remarks = vec![name.to_owned()];
        record.environment[0].hosts[0].name = name.to_owned();
        record.environment[0].launcher = name.to_owned();
        let variables = &mut record.environment[0].machine.variables;
        variables.insert("FI_PROVIDER".to_owned(), name.to_owned());
        record.published_rows[0].what = name.to_owned();
        record.bound.as_mut().unwrap().what = name.to_owned();
        let value = serde_json::to_value(&*record).unwrap();
        let mut value = value;
        value["point"]["label"] = name.into();
        *record = serde_json::from_value(value).unwrap();
    }
    records
}

/// Tags and attribute names of a page in order, without text and attribute values.
fn skeleton(page: &str) -> Vec<String> {
    let mut tags = Vec::new();
    for part in page.split('<').skip(1) {
        let mut tag = String::new();
        let mut quoted = false;
        for letter in part.chars() {
            match letter {
                '"' => quoted = !quoted,
                '>' if !quoted => break,
                _ if quoted => {}
                other => tag.push(other),
            }
        }
        tags.push(tag);
    }
    tags
}

fn assert_is_text(name: &str) {
    let (hostile, harmless) = (page_of(&named(name), true), page_of(&named("x"), true));
    assert_eq!(skeleton(&hostile), skeleton(&harmless), "{name}");
    let found = records_of_page(&hostile, std::path::Path::new("p.html")).unwrap();
    assert_eq!(found[0].records, named(name));
}

#[test]
fn hostile_names_are_text() {
    let long = "n".repeat(10_000);
    for name in [
        "<script>alert(1)</script>",
        "</script></style></title><svg onload=alert(1)>",
        "\"'><img src=x onerror=alert(1)>",
        "</a><a class=\"records\" download=\"x\" href=\"data:application/gzip;base64,AAAA\">",
        "<!--",
        "]]>",
        "&lt;b&gt;",
        "\u{202e}gnp.exe",
        "שלום עולם",
        "a\u{0}b\u{1b}[2J",
        long.as_str(),
    ] {
        assert_is_text(name);
    }
    let page = page_of(&named("<script>alert(1)</script>"), false);
    assert_eq!(page.matches("<script").count(), 1, "our own");
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
}

/// A name with direction-changing characters must stand alone: in an isolating element, a cell, a command line or a
/// tooltip.
#[test]
fn text_after_a_name_keeps_its_order() {
    let turning = "a\u{202e}b";
    let mut records = named(turning);
    records[1].outcome = tonnage_record::Outcome::Failed {
        why: turning.to_owned(),
    };
    let page = page_of(&records, true);
    let (mut isolated, mut links) = (0, 0);
    for part in page.split('<').filter(|part| part.contains('\u{202e}')) {
        let alone = [
            "bdi>",
            "td>",
            "td align=left dir=auto>",
            "td dir=\"auto\"",
            "pre>",
        ];
        let is_alone = alone.iter().any(|tag| part.starts_with(tag));
        assert!(is_alone || part.contains("data-v=\""), "{part}");
        isolated += usize::from(part.starts_with("bdi>"));
        links += usize::from(part.starts_with("a "));
    }
    assert!(isolated >= 4, "{isolated}");
    assert_eq!(links, 0);
    assert!(page.contains("a\u{fffd}b"), "in drawings");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_name_is_text(name in "[<>\"'&/=a!\\-\\PC]{1,24}") {
        assert_is_text(&name);
    }
}
