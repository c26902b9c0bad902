//! Pages of `tonnage report` in a real browser. They are opened as a file, and from a server with the policy that
//! Jenkins applies to artifacts.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::tempdir;

use super::support::chromium::{Chromium, Tab, file};
use super::support::tonnage;

/// The policy that Jenkins sends with artifacts.
const POLICY: &str = "sandbox; default-src 'none'; img-src 'self'; style-src 'self';";

/// Writes records of a sweep, of a trial in intervals and of a matrix with a slow row. One has a malicious name.
fn records(dir: &Path) {
    let run = |arguments: &str| tonnage(dir, arguments).run().with_code(0);
    let null = "transfer --engine null --op write --ranks 2";
    run(&format!(
        "{null} --sizes 64..64k*2 --duration 4ms --trials 2 --warmup 1ms -o r.jsonl"
    ));
    run(&format!(
        "{null} --sizes 64 --interval 10ms --duration 50ms -o r.jsonl"
    ));
    let text = fs::read_to_string(dir.join("r.jsonl")).unwrap();
    let mut lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut matrix = lines[0].clone();
    matrix["point"]["traffic"] = "matrix".into();
    matrix["point"]["ranks"] = 64.into();
    let pairs = (0..64u32).flat_map(|from| (0..64u32).map(move |to| (from, to)));
    let pairs = pairs.filter(|(from, to)| from != to).map(|(from, to)| {
        let rate = if from == 5 { 5e9 } else { 1e10 };
        json!({"initiator": from, "target": to, "payload_bytes": 1, "bandwidth_bytes_per_s": rate, "bandwidth_bytes_per_s_max": rate})
    });
    matrix["summary"]["pairs"] = pairs.collect();
    matrix["summary"]["matrix"] = json!({
        "across_hosts": {"median_bytes_per_s": 1e10, "width_fraction": 0.01},
        "slow_senders": [{"rank": 5, "of_median": 0.5}],
    });
    lines.push(matrix);
    let text = lines.iter_mut().map(|line| {
        line.as_object_mut().unwrap().remove("checksum");
        line["plan"] = "<script>window.hit=1</script>".into();
        line.to_string() + "\n"
    });
    fs::write(dir.join("r.jsonl"), text.collect::<String>()).unwrap();
}

/// Serves a page with the policy to any number of clients. Returns its address.
fn serve(page: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/page.html", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(&stream).lines();
            while lines
                .next()
                .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
            {}
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\
                 Content-Security-Policy: {POLICY}\r\n\r\n",
                page.len()
            );
            let _ = (&stream)
                .write_all(head.as_bytes())
                .and_then(|()| (&stream).write_all(page.as_bytes()));
        }
    });
    address
}

/// Script that returns the lowest contrast of any text with its background.
const LEAST_CONTRAST: &str = r"(() => {
  const parts = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = (colour) => parts(colour).slice(0, 3).map((it) => it / 255)
    .map((it) => it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4)
    .reduce((sum, it, at) => sum + it * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if ((parts(colour)[3] ?? 1) > 0) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  // In a drawing, text lies over shapes that were drawn before it, some of them translucent.
  const shapes = new Map();
  const filled = (svg) => {
    if (!shapes.has(svg)) {
      const all = [...svg.querySelectorAll('rect, circle, path')].filter((it) => getComputedStyle(it).fill !== 'none');
      shapes.set(svg, all.map((it) => [it, it.getBoundingClientRect()]));
    }
    return shapes.get(svg);
  };
  const below = (text) => {
    const box = text.getBoundingClientRect();
    const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
    let colour = behind(text);
    for (const [shape, at] of filled(text.ownerSVGElement)) {
      const covers = at.left <= x && x <= at.right && at.top <= y && y <= at.bottom;
      if (!covers || !(shape.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING)) continue;
      const style = getComputedStyle(shape);
      const part = (parts(style.fill)[3] ?? 1) * style.fillOpacity * style.opacity;
      const under = parts(colour);
      colour = `rgb(${parts(style.fill).slice(0, 3).map((it, at) => it * part + under[at] * (1 - part)).join(', ')})`;
    }
    return colour;
  };
  let least = 21;
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((it) => it.nodeType === 3 && it.data.trim());
    if (!own || ['SCRIPT', 'STYLE', 'title', 'desc'].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const drawn = element.namespaceURI.includes('svg');
    const [ink, paper] = drawn ? [style.fill, below(element)] : [style.color, behind(element)];
    const [a, b] = [light(ink), light(paper)].sort((x, y) => y - x);
    least = Math.min(least, (a + 0.05) / (b + 0.05));
  }
  return least;
})()";

/// Script that puts a heat map's text over one of its cells, in nearly the same colour.
const OVER_A_CELL: &str = "(() => { const cell = document.querySelector('.cells rect');
  const text = cell.ownerSVGElement.querySelector('text').cloneNode(true);
  for (const place of ['x', 'y']) text.setAttribute(place, Number(cell.getAttribute(place)) + cell.getAttribute('width') / 2);
  text.setAttribute('dy', 4); text.setAttribute('text-anchor', 'middle'); text.setAttribute('fill', cell.getAttribute('fill'));
  cell.ownerSVGElement.append(text); })()";

/// Script that returns the number of tables and drawings that are not visible.
const HIDDEN: &str = "[...document.querySelectorAll('table, svg')].filter((it) => !it.checkVisibility() || !it.getBoundingClientRect().height).length";

#[test]
fn pages_are_whole_with_scripts_and_without() {
    let Some(mut browser) = Chromium::start() else {
        return;
    };
    let dir = tempdir().unwrap();
    records(dir.path());
    let make = |arguments: &str| tonnage(dir.path(), arguments).run().with_code(0);
    make("report r.jsonl -o full.html");
    make("report r.jsonl -o plain.html --plain");

    let full = file(&dir.path().join("full.html"));
    let tab = browser.open(&full, 1280, false, true);
    works_with_its_script(&mut browser, &tab);
    assert_eq!(browser.requests(), [full.as_str()]);
    assert_eq!(browser.console(), Vec::<String>::new());
    for dark in [false, true] {
        let tab = browser.open(&full, 390, dark, true);
        let least = browser.evaluate(&tab, LEAST_CONTRAST).as_f64().unwrap();
        assert!((4.5..21.0).contains(&least), "dark {dark}: {least}");
        // The contrast check must detect text over a cell.
        let over_a_cell = format!("{OVER_A_CELL}, {LEAST_CONTRAST}");
        let least = browser.evaluate(&tab, &over_a_cell).as_f64().unwrap();
        assert!(least < 4.5, "dark {dark}: {least}");
        let wide = browser
            .evaluate(&tab, "document.documentElement.scrollWidth")
            .as_f64()
            .unwrap();
        assert!(wide <= 390.0, "{wide}");
    }

    // With the policy, the whole page is still visible. A page without style and script logs nothing to the console.
    let plain = fs::read_to_string(dir.path().join("plain.html")).unwrap();
    let address = serve(plain);
    let tab = browser.open(&address, 1280, false, true);
    assert_eq!(browser.console(), Vec::<String>::new());
    assert_eq!(browser.requests(), [address.as_str()]);
    is_whole(&mut browser, &tab);
    let address = serve(fs::read_to_string(dir.path().join("full.html")).unwrap());
    let tab = browser.open(&address, 1280, false, true);
    let console = browser.console();
    // The console has one error for the style and one for the script.
    for refused in ["Applying inline style violates", "Blocked script execution"] {
        let told = console.iter().filter(|it| it.contains(refused));
        assert_eq!(told.count(), 1, "{refused}: {console:#?}");
    }
    assert_eq!(console.len(), 2, "{console:#?}");
    is_whole(&mut browser, &tab);
}

/// Checks values under the pointer and by keyboard, zoom, sorting and filters. Folded parts must be visible in print.
fn works_with_its_script(browser: &mut Chromium, tab: &Tab) {
    let mut holds = |expression: &str| {
        let found = browser.evaluate(tab, expression);
        assert_eq!(found, true, "{expression}");
    };
    holds(
        "window.hit === undefined && document.body.innerText.includes('<script>window.hit=1</script>')",
    );
    holds(
        "window.svg = document.querySelector('.plot svg'); window.tip = document.querySelector('.tip'); tip.hidden",
    );
    holds(
        "(() => { const mark = svg.querySelector('[data-v]'); const box = mark.getBoundingClientRect();
          mark.dispatchEvent(new PointerEvent('pointermove', {clientX: box.x, clientY: box.y, bubbles: true}));
          return !tip.hidden && tip.textContent === mark.getAttribute('data-v'); })()",
    );
    holds(
        "svg.getAttribute('role') === 'application' && svg.getAttribute('aria-describedby').split(' ')
          .every((id) => document.getElementById(id).textContent.length > 20)",
    );
    holds(
        "(() => { const key = (key) => svg.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
          svg.focus(); const before = tip.textContent; key('ArrowRight'); const after = tip.textContent;
          const whole = svg.getAttribute('viewBox'); key('+'); const near = svg.getAttribute('viewBox'); key('0');
          return document.activeElement === svg && before !== after && near !== whole && svg.getAttribute('viewBox') === whole; })()",
    );
    holds(
        "(() => { window.sheet = [...document.querySelectorAll('table')].find((it) => it.tHead?.textContent.startsWith('MsgSize'));
          const sizes = () => [...sheet.tBodies[0].rows].map((row) => parseFloat(row.cells[0].textContent));
          const sorted = (sign) => sizes().every((it, at, all) => !at || sign * (it - all[at - 1]) >= 0);
          const sort = sheet.tHead.rows[0].cells[0].querySelector('button');
          sort.click(); const up = sorted(1); sort.click(); return up && sorted(-1) && sizes().length > 8; })()",
    );
    holds(
        "(() => { const filter = sheet.parentElement.previousElementSibling.querySelector('input[type=search]');
          const rows = [...sheet.tBodies[0].rows];
          filter.value = '65536'; filter.dispatchEvent(new Event('input'));
          const shown = rows.filter((row) => !row.hidden);
          return shown.length === 1 && shown[0].cells[0].textContent === '65536'; })()",
    );
    holds(&format!("{HIDDEN} > 0"));
    holds(&format!(
        "dispatchEvent(new Event('beforeprint')), {HIDDEN} === 0"
    ));
}

/// Checks that all tables and drawings are visible, and that the slow row of the matrix is marked.
fn is_whole(browser: &mut Chromium, tab: &Tab) {
    for media in ["screen", "print"] {
        browser.order(tab, "Emulation.setEmulatedMedia", json!({"media": media}));
        assert_eq!(browser.evaluate(tab, HIDDEN), 0, "{media}");
    }
    let marked =
        "document.querySelector('.slow-row[data-rank=\"5\"]').getBoundingClientRect().width > 3";
    assert_eq!(browser.evaluate(tab, marked), true);
    assert_eq!(
        browser.evaluate(tab, "document.querySelector('.tip')"),
        Value::Null
    );
}
