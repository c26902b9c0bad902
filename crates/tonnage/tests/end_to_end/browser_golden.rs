//! Drawings as Chromium paints them, compared with stored ones: bandwidth over size, latency, a matrix, a comparison.
//!
//! Texts are hidden, because they look different in every font. Each stored number is the mean lightness of a square of
//! ten pixels. That value hardly depends on how lines are smoothed. `TONNAGE_BLESS=1` stores the current drawings.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::tempdir;

use super::support::chromium::{Chromium, Tab, file};
use super::support::tonnage;

/// A record of one point. All other records are copies of it with changes.
const RECORD: &str = include_str!("../../../page/src/tests/record.json");

/// Sizes of the sweep.
const SIZES: [u64; 5] = [64, 1024, 16384, 262_144, 1 << 20];

/// For each drawing: its page, the beginning of its title, and the name of the stored file.
const DRAWINGS: [(&str, &str, &str); 4] = [
    ("sweep", "Avg BW (GB/s) over the size", "bandwidth"),
    ("sweep", "Latency percentiles over the size", "latency"),
    ("matrix", "Bandwidth from each rank to each", "matrix"),
    ("comparison", "Ratios B / A", "comparison"),
];

/// Tolerated difference in the lightness of a square, out of 255. A mark of six pixels that fills a square changes its
/// lightness by about 30. A mark that is shifted by one pixel changes it by less than this tolerance.
const TOLERANCE: u8 = 10;

/// Script that shows one drawing alone, in its own size and without texts, and returns its size.
const STAGE: &str = "(() => {
  const drawing = [...document.querySelectorAll('svg')].find((it) => it.querySelector('title')?.textContent.startsWith(TITLE));
  const stage = document.createElement('div');
  stage.className = 'plot'; stage.id = 'stage';
  stage.style = 'position:fixed;inset:0;z-index:9999;background:#fff;max-width:none;margin:0;padding:0;border:0';
  const copy = drawing.cloneNode(true);
  const {width, height} = copy.viewBox.baseVal;
  copy.style = `position:absolute;left:0;top:0;width:${width}px;height:${height}px;max-width:none;margin:0;border:0`;
  copy.querySelectorAll('text').forEach((it) => { it.style.visibility = 'hidden'; });
  stage.append(copy);
  document.getElementById('stage')?.remove();
  document.body.append(stage);
  return {width, height};
})()";

/// Expression for the marks of the shown drawing.
const MARKS: &str = "[...document.querySelectorAll('#stage [data-v]')]";

/// Script that returns the mean lightness of a picture's squares, row by row.
const COARSE: &str = "(async () => {
  const image = new Image();
  image.src = 'data:image/png;base64,' + PICTURE;
  await image.decode();
  const {width, height} = image;
  const context = new OffscreenCanvas(width, height).getContext('2d');
  context.drawImage(image, 0, 0);
  const {data} = context.getImageData(0, 0, width, height);
  const mean = (left, top) => {
    let sum = 0;
    for (let y = top; y < top + 10; y++) for (let x = left; x < left + 10; x++) {
      const at = 4 * (y * width + x);
      sum += 0.2126 * data[at] + 0.7152 * data[at + 1] + 0.0722 * data[at + 2];
    }
    return Math.round(sum / 100);
  };
  const steps = (length) => [...Array(Math.floor(length / 10)).keys()].map((it) => it * 10);
  return steps(height).map((top) => steps(width).map((left) => mean(left, top)));
})()";

type Lightness = Vec<Vec<u8>>;

/// A record of a run with this size, and with mean bandwidth and latency scaled from the stored record.
fn record(run: &str, size: u64, bandwidth_bytes_per_s: f64, latency_part: f64) -> Value {
    let mut record: Value = serde_json::from_str(RECORD).unwrap();
    record["run_id"] = run.into();
    record["point"]["size_bytes"] = size.into();
    record["point"]["stride_bytes"] = size.into();
    let bandwidth = &mut record["summary"]["bandwidth_bytes_per_s"];
    bandwidth["mean"] = bandwidth_bytes_per_s.into();
    bandwidth["ci95"] = (bandwidth_bytes_per_s * 0.02).into();
    let latency = record["summary"]["latency"].as_object_mut().unwrap();
    for (_, value) in latency
        .iter_mut()
        .filter(|(name, _)| name.contains("_ns_p"))
    {
        *value = json!((value.as_f64().unwrap() * latency_part).round() as u64);
    }
    record
}

/// A sweep in which each size's bandwidth is scaled by `parts`.
fn sweep(run: &str, parts: [f64; 5]) -> Vec<Value> {
    let each = SIZES.iter().zip(parts).zip(1_u32..);
    let each = each.map(|((size, part), at)| {
        let at = f64::from(at);
        record(run, *size, 1e9 * at * at * part, at)
    });
    each.collect()
}

/// A matrix of sixteen ranks. One of them sends slowly.
fn matrix() -> Value {
    let mut record = record("run-3", 64, 1e10, 1.0);
    record["point"]["traffic"] = "matrix".into();
    record["point"]["ranks"] = 16.into();
    let pairs = (0..16_u32).flat_map(|from| (0..16_u32).map(move |to| (from, to)));
    let pairs = pairs.filter(|(from, to)| from != to).map(|(from, to)| {
        let rate = if from == 5 { 5e9 } else { 1e10 + f64::from(to) * 1e8 };
        json!({"initiator": from, "target": to, "payload_bytes": 1, "bandwidth_bytes_per_s": rate, "bandwidth_bytes_per_s_max": rate})
    });
    record["summary"]["pairs"] = pairs.collect();
    record["summary"]["matrix"] = json!({
        "across_hosts": {"median_bytes_per_s": 1e10, "width_fraction": 0.01},
        "slow_senders": [{"rank": 5, "of_median": 0.5}],
    });
    record
}

fn make_pages(dir: &Path) {
    let write = |name: &str, records: &[Value]| {
        let text: String = records.iter().map(|it| format!("{it}\n")).collect();
        fs::write(dir.join(name), text).unwrap();
    };
    write("sweep.jsonl", &sweep("run-1", [1.0; 5]));
    write("other.jsonl", &sweep("run-2", [1.0, 1.2, 1.0, 0.5, 0.9]));
    write("matrix.jsonl", &[matrix()]);
    for arguments in [
        "report sweep.jsonl -o sweep.html",
        "report matrix.jsonl -o matrix.html",
        "report --compare sweep.jsonl other.jsonl --by-trials -o comparison.html",
    ] {
        let made = tonnage(dir, arguments).run();
        assert!(
            dir.join(arguments.rsplit(' ').next().unwrap()).is_file(),
            "{made:#?}"
        );
    }
}

/// Returns the drawing with this title as it is painted after `change` has run.
fn painted(browser: &mut Chromium, tab: &Tab, title: &str, change: &str) -> Lightness {
    let stage = STAGE.replace("TITLE", &json!(title).to_string());
    let size = browser.evaluate(tab, &stage);
    browser.evaluate(tab, change);
    let clip =
        json!({"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1});
    let wanted = json!({"format": "png", "clip": clip});
    let picture = browser.order(tab, "Page.captureScreenshot", wanted);
    let coarse = COARSE.replace("PICTURE", &picture["data"].to_string());
    serde_json::from_value(browser.evaluate(tab, &coarse)).unwrap()
}

/// Describes squares that differ by more than the tolerance. Pictures of different sizes differ as a whole.
fn differing(one: &Lightness, other: &Lightness) -> Vec<String> {
    let widths = |it: &Lightness| it.iter().map(Vec::len).collect::<Vec<_>>();
    if widths(one) != widths(other) {
        return vec![format!("{} and {} rows differ", one.len(), other.len())];
    }
    let rows = one.iter().zip(other).zip(0..);
    let squares = rows.flat_map(|((one, other), row)| {
        one.iter()
            .zip(other)
            .zip(0..)
            .map(move |((one, other), column)| (*one, *other, row, column))
    });
    let beyond = squares.filter(|(one, other, ..)| one.abs_diff(*other) > TOLERANCE);
    beyond
        .map(|(one, other, row, column): (u8, u8, usize, usize)| {
            format!("x {} y {}: {one}, not {other}", column * 10, row * 10)
        })
        .collect()
}

fn stored_at(name: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/end_to_end/golden");
    place.join(format!("{name}.txt"))
}

/// Writes one line per row, with two hexadecimal digits per square.
fn written(lightness: &Lightness) -> String {
    let row = |row: &Vec<u8>| row.iter().map(|it| format!("{it:02x}")).collect::<String>() + "\n";
    lightness.iter().map(row).collect()
}

fn read(text: &str) -> Lightness {
    let square = |digits: &[u8]| u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap();
    let row = |line: &str| line.as_bytes().chunks(2).map(square).collect();
    text.lines().map(row).collect()
}

/// The drawings must match the stored ones. A moved or missing mark must be detected, but a different font must not.
#[test]
fn drawings_are_painted_as_they_were() {
    let Some(mut browser) = Chromium::start() else {
        return;
    };
    let dir = tempdir().unwrap();
    make_pages(dir.path());
    for (page, title, name) in DRAWINGS {
        let address = file(&dir.path().join(format!("{page}.html")));
        let tab = browser.open(&address, 1280, false, true);
        let found = painted(&mut browser, &tab, title, "0");
        if std::env::var_os("TONNAGE_BLESS").is_some() {
            fs::write(stored_at(name), written(&found)).unwrap();
        }
        let stored = read(&fs::read_to_string(stored_at(name)).unwrap());
        let beyond = differing(&found, &stored);
        assert!(
            beyond.is_empty(),
            "{name}: {} squares differ: {:?}; if that is right, run it with TONNAGE_BLESS=1",
            beyond.len(),
            &beyond[..beyond.len().min(9)]
        );
        let changes = [
            (
                "one mark moved",
                "{ const mark = MARKS.at(-1); mark.style.transform = 'translate(0, -10px)'; }",
                true,
            ),
            ("one mark missing", "MARKS.at(-1).remove()", true),
            ("no marks", "MARKS.forEach((it) => it.remove())", true),
            (
                "another font",
                "document.documentElement.style.fontFamily = 'monospace'",
                false,
            ),
        ];
        for (what, change, is_seen) in changes {
            let change = change.replace("MARKS", MARKS);
            let changed = painted(&mut browser, &tab, title, &change);
            assert_eq!(
                !differing(&changed, &stored).is_empty(),
                is_seen,
                "{name}: {what}"
            );
        }
    }
}
