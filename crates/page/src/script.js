'use strict';
// Optional extras for a page that is complete without them: tooltips, zoom, sorting and filters.
(() => {
  const make = (name, text) => Object.assign(document.createElement(name), { textContent: text });
  const button = (text, label, act) => {
    const made = make('button', text);
    made.type = 'button';
    if (label) made.setAttribute('aria-label', label);
    made.addEventListener('click', act);
    return made;
  };

  // Tooltips, under the pointer or with the arrow keys.
  const tip = make('div', '');
  tip.className = 'tip';
  tip.hidden = true;
  tip.setAttribute('role', 'status');
  document.body.append(tip);
  let here = null;
  const show = (mark) => {
    if (here) here.classList.remove('here');
    here = mark;
    tip.hidden = !mark;
    if (!mark) return;
    mark.classList.add('here');
    tip.textContent = mark.getAttribute('data-v');
    const box = mark.getBoundingClientRect();
    const left = Math.min(box.right + 8, innerWidth - tip.offsetWidth - 4);
    tip.style.left = Math.max(4, left) + 'px';
    tip.style.top = Math.max(4, box.top - tip.offsetHeight - 6) + 'px';
  };
  // The nearest mark of a plot, because small marks are hard to hit.
  const nearest = (marks, x, y) => {
    let best = null;
    let least = 24;
    for (const mark of marks) {
      const box = mark.getBoundingClientRect();
      const dx = Math.max(box.left - x, 0, x - box.right);
      const dy = Math.max(box.top - y, 0, y - box.bottom);
      const away = Math.hypot(dx, dy) + Math.hypot(box.left + box.width / 2 - x, box.top + box.height / 2 - y) / 1e3;
      if (away < least) [best, least] = [mark, away];
    }
    return best;
  };

  const keys = make('p', 'Arrow keys go from value to value, + and - zoom, 0 shows the whole plot, Escape hides the value.');
  keys.id = 'keys-of-plots';
  keys.hidden = true;
  document.body.append(keys);
  for (const plot of document.querySelectorAll('.plot')) {
    const svg = plot.querySelector('svg');
    const marks = [...svg.querySelectorAll('[data-v]')];
    const whole = svg.getAttribute('viewBox').split(' ').map(Number);
    let view = [...whole];
    const look = (x, y, width) => {
      const w = Math.min(whole[2], Math.max(whole[2] / 16, width));
      const h = whole[3] * w / whole[2];
      const inside = (at, size, all) => Math.min(Math.max(at, 0), all - size);
      view = [inside(x, w, whole[2]), inside(y, h, whole[3]), w, h];
      svg.setAttribute('viewBox', view.join(' '));
      show(null);
    };
    const zoom = (factor, px = 0.5, py = 0.5) => {
      const w = Math.min(whole[2], view[2] * factor);
      const h = whole[3] * w / whole[2];
      look(view[0] + (view[2] - w) * px, view[1] + (view[3] - h) * py, w);
    };
    const tools = make('div', '');
    tools.className = 'tools';
    tools.append(
      button('+', 'Zoom in', () => zoom(0.5)),
      button('−', 'Zoom out', () => zoom(2)),
      button('whole', 'Show the whole plot', () => look(0, 0, whole[2])));
    // The role "img" takes no keys. This one does, and its description lists them.
    svg.setAttribute('role', 'application');
    svg.setAttribute('aria-roledescription', 'plot');
    svg.setAttribute('aria-describedby', `${svg.getAttribute('aria-describedby')} ${keys.id}`);
    plot.before(tools);
    svg.setAttribute('tabindex', '0');
    let from = null;
    svg.addEventListener('pointerdown', (event) => {
      if (view[2] < whole[2]) from = [event.clientX, event.clientY, view[0], view[1]];
    });
    svg.addEventListener('pointermove', (event) => {
      if (from) {
        const scale = view[2] / svg.getBoundingClientRect().width;
        look(from[2] - (event.clientX - from[0]) * scale, from[3] - (event.clientY - from[1]) * scale, view[2]);
      } else {
        show(event.target.closest('[data-v]') || nearest(marks, event.clientX, event.clientY));
      }
    });
    for (const end of ['pointerup', 'pointerleave']) svg.addEventListener(end, () => { from = null; });
    svg.addEventListener('pointerleave', () => show(null));
    svg.addEventListener('blur', () => show(null));
    svg.addEventListener('wheel', (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const box = svg.getBoundingClientRect();
      zoom(event.deltaY < 0 ? 0.8 : 1.25, (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
    }, { passive: false });
    svg.addEventListener('keydown', (event) => {
      const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
      const acts = { '+': () => zoom(0.5), '-': () => zoom(2), 0: () => look(0, 0, whole[2]), Escape: () => show(null) };
      if (event.key in steps && marks.length) {
        const at = marks.indexOf(here) + steps[event.key];
        show(marks[(at + marks.length) % marks.length]);
      } else if (event.key in acts) {
        acts[event.key]();
      } else {
        return;
      }
      event.preventDefault();
    });
  }

  // Long tables are collapsed on the screen and expanded in print.
  const folded = [...document.querySelectorAll('details.numbers')];
  const fold = (open) => folded.forEach((part) => { part.open = open; });
  fold(false);
  addEventListener('beforeprint', () => fold(true));
  addEventListener('afterprint', () => fold(false));

  // Sorts by a click on a header; numbers by value, including their prefixes.
  const prefixes = { k: 1e3, M: 1e6, G: 1e9 };
  const amount = (text) => {
    const found = /^-?[\d.]+(?:e-?\d+)?([kMG]?)(?![\w])/.exec(text);
    return found ? parseFloat(text) * (prefixes[found[1]] || 1) : NaN;
  };
  const order = (a, b) => {
    const [x, y] = [amount(a), amount(b)];
    if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
    return Number.isNaN(x) ? a.localeCompare(b) : x - y;
  };
  for (const table of document.querySelectorAll('.wide>table')) {
    const head = table.tHead && table.tHead.rows[0];
    const body = table.tBodies[0];
    if (!head || body.rows.length < 2) continue;
    [...head.cells].forEach((cell, at) => {
      const sort = button(cell.textContent, '', () => {
        const up = cell.getAttribute('aria-sort') !== 'ascending';
        for (const other of head.cells) other.removeAttribute('aria-sort');
        cell.setAttribute('aria-sort', up ? 'ascending' : 'descending');
        const rows = [...body.rows];
        rows.sort((a, b) => (up ? 1 : -1) * order(a.cells[at].textContent, b.cells[at].textContent));
        body.append(...rows);
      });
      cell.replaceChildren(sort);
    });
    if (body.rows.length < 8) continue;
    const filter = make('input', '');
    filter.type = 'search';
    filter.placeholder = 'filter rows';
    filter.setAttribute('aria-label', 'Show only rows with this text');
    const count = make('span', '');
    count.setAttribute('role', 'status');
    filter.addEventListener('input', () => {
      const wanted = filter.value.trim().toLowerCase();
      let shown = 0;
      for (const row of body.rows) {
        row.hidden = !row.textContent.toLowerCase().includes(wanted);
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = wanted ? `${shown} of ${body.rows.length} rows` : '';
    });
    const tools = make('div', '');
    tools.className = 'tools';
    tools.append(filter, count);
    table.parentElement.before(tools);
  }
})();
