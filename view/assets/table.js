// The table of episodes: a row per episode and a column per metric. The page contains elements only
// for the visible rows.
import { $, css, icon, make, paint } from './api.js';
import { column, listing, order, place, selected, task } from './episodes.js';
import * as flags from './flags.js';
import { choices, hue, show } from './list.js';
import { index, on, state, tell } from './state.js';

const high = 30,
  bars = 24,
  fixed = ['task', 'length', 'flags', 'findings'];

// preferred are the metrics that are shown at first, if the table has them.
const preferred = [
  'score',
  'success',
  'reward_sum',
  'duration',
  'idle',
  'jerk_rms',
  'sparc',
  'hesitations',
  'gripper_events',
  'gripper_chatter',
  'action_lag',
  'tracking_error',
  'camera_lag',
  'gaps',
  'blur',
  'frozen_frames',
  'black_frames',
  'duplicate',
  'outlier'
];

let cursor = 0, // place in the order
  anchor = 0, // where a range with Shift begins
  head = [],
  pool = [];

// names returns the columns that are shown.
function names() {
  const all = listing().columns;
  if (state.cols) return state.cols.split(',').filter((n) => all.get(n));
  const metrics = listing().quality.metrics.map((m) => m.name),
    first = preferred.filter((n) => metrics.includes(n));
  return [...fixed, ...(first.length ? first : metrics.slice(0, 10))];
}

// build makes the head for the columns that are shown.
function build() {
  if (!state.table || !listing()) return;
  const shown = names();
  listing().columns.need(shown);
  head = shown.map((n) => {
    const c = column(n),
      canvas = make('canvas', { ariaHidden: 'true' }),
      sign = make('span', { className: 'sign' }),
      button = make(
        'button',
        { title: about(c), onclick: () => sort(n) },
        make('b', {}, c.title),
        make('small', {}, sign, c.unit && c.unit !== 'count' ? c.unit : '')
      );
    const className = words.includes(n) ? 'words' : '',
      cell = make('div', { role: 'columnheader', className }, button, canvas);
    return { c, canvas, sign, cell };
  });
  const number = make('button', { title: 'index of the episode', onclick: () => sort('') }, make('b', {}, 'episode'));
  $('grid-head').replaceChildren(
    make('div', { role: 'columnheader' }, number),
    ...head.map((h) => h.cell)
  );
  $('grid').style.setProperty(
    '--cols',
    '6em ' + shown.map((n) => widths[n] ?? width(column(n).title)).join(' ')
  );
  for (const row of pool) row.remove();
  pool = [];
  draw();
}

const widths = { task: '16em', flags: '8em', findings: '10em' },
  words = Object.keys(widths);
const width = (title) => `${Math.max(6, 0.62 * title.length + 1.6).toFixed(1)}em`;

const about = (c) =>
  [c.summary, c.source, c.inferred ? 'A finding is inferred, not measured.' : '']
    .filter(Boolean)
    .join('\n');

// sort orders by a column: the greatest first, then the least first, then by number.
function sort(name) {
  if (!name) show(state.by, '');
  else if (name === 'task') show(state.by, state.sort === 'task' ? '' : 'task');
  else {
    const by = name === 'length' ? '' : name,
      next = state.by === by ? { down: 'up', up: '' }[state.sort] ?? 'down' : 'down';
    show(by, next);
  }
}

// histograms draws the small histograms of the head and the sign of the order.
function histograms() {
  const by = state.by || 'length';
  for (const { c, canvas, sign, cell } of head) {
    const way = c.name === 'task' ? state.sort === 'task' && 'up' : c.name === by && state.sort;
    cell.ariaSort = way === 'up' ? 'ascending' : way === 'down' ? 'descending' : 'none';
    sign.replaceChildren(...(way === 'up' || way === 'down' ? [icon(way)] : []));
    cell.classList.toggle('by', c.name === by);
    const ready = c.values && c.name !== 'task' && c.ranking().known > 0;
    canvas.style.visibility = ready ? '' : 'hidden';
    if (!ready) continue;
    // Painting is slow, and scrolling changes nothing here.
    const look = `${c.name === by} ${document.documentElement.dataset.theme} ${canvas.clientWidth}`;
    if (canvas.look === look && canvas.of === c.values) continue;
    Object.assign(canvas, { look, of: c.values });
    const { g, w, h } = paint(canvas),
      counts = c.bins(bars),
      top = Math.max(...counts);
    g.fillStyle = css(c.name === by ? '--accent' : '--edge');
    counts.forEach((x, i) => {
      const tall = Math.max(1, (x / top) * h);
      if (x) g.fillRect((i * w) / bars, h - tall, w / bars - 1, tall);
    });
  }
}

function rowAt(slot) {
  const cells = head.map(({ c }) =>
    make('div', { role: 'gridcell', className: words.includes(c.name) ? 'words' : '' })
  );
  const number = make('div', { role: 'rowheader' });
  const row = make('div', { className: 'entry', role: 'row', id: 'entry-' + slot }, number, ...cells);
  Object.assign(row, { number, cells, k: -1 });
  row.onclick = (ev) => choose(row.k, ev);
  row.ondblclick = () => open(row.k);
  $('grid-rows').append(row);
  return row;
}

function fill(row, k) {
  const e = order[k],
    colour = state.colour && column(state.colour),
    { deviating, found } = listing();
  row.k = k;
  row.hidden = e === undefined;
  if (row.hidden) return;
  row.style.top = k * high + 'px';
  row.number.textContent = index(state.s, e);
  row.style.setProperty('--hue', hue(colour, e));
  head.forEach(({ c }, i) => {
    let text = c.values ? c.text(c.values[e]) : '…';
    let title = deviating.get(`${e} ${c.name}`);
    row.cells[i].classList.toggle('deviates', !!title);
    if (c.name === 'task') title = text = task(e);
    else if (c.name === 'flags')
      title = text = flags.flagsOf(e).map((f) => f.label || 'flagged').join(', ');
    else if (c.name === 'findings') {
      const list = found.get(e) || [];
      text = [...new Set(list.map((f) => f.code))].join(', ');
      title = list.map((f) => f.message).join('\n');
      row.cells[i].classList.toggle('deviates', list.length > 0);
    }
    row.cells[i].textContent = text;
    row.cells[i].title = title ?? '';
  });
  row.ariaSelected = String(selected.has(e));
  row.ariaRowIndex = String(k + 2);
  row.classList.toggle('cursor', k === cursor);
  row.classList.toggle('open', e === state.e);
}

export function draw() {
  if (!state.table || $('sheet').hidden) return;
  const grid = $('grid'),
    top = $('grid-head').offsetHeight,
    first = Math.max(0, Math.floor(grid.scrollTop / high) - 4),
    n = Math.min(order.length - first, Math.ceil((grid.clientHeight - top) / high) + 8);
  $('grid-rows').style.height = order.length * high + 'px';
  grid.ariaRowCount = String(order.length + 1);
  while (pool.length < n) pool.push(rowAt(pool.length));
  pool.forEach((row) => (row.used = false));
  // A row keeps its element while it is visible.
  for (let k = first; k < first + n; k++) {
    const row = pool[k % pool.length];
    fill(row, k);
    row.used = true;
  }
  for (const row of pool) if (!row.used) row.hidden = true;
  grid.setAttribute('aria-activedescendant', pool.length ? 'entry-' + (cursor % pool.length) : '');
  histograms();
  const count = selected.size;
  $('selected').textContent = count ? `${count} selected` : '';
  for (const id of ['flag-selected', 'unselect']) $(id).disabled = !count;
}

// moveTo moves the cursor, scrolls to it and selects its row. With extend it selects a range.
function moveTo(k, extend) {
  cursor = Math.min(Math.max(k, 0), Math.max(0, order.length - 1));
  if (!extend) anchor = cursor;
  selected.clear();
  range(anchor, cursor);
  const grid = $('grid'),
    top = $('grid-head').offsetHeight,
    y = cursor * high;
  if (y < grid.scrollTop) grid.scrollTop = y;
  if (y + high > grid.scrollTop + grid.clientHeight - top)
    grid.scrollTop = y + high - grid.clientHeight + top;
  draw();
}

function range(a, b) {
  for (let k = Math.min(a, b); k <= Math.max(a, b) && k < order.length; k++) selected.add(order[k]);
}

function choose(k, ev) {
  cursor = k;
  if (ev.shiftKey) {
    if (!ev.ctrlKey && !ev.metaKey) selected.clear();
    range(anchor, k);
  } else if (ev.ctrlKey || ev.metaKey) {
    if (!selected.delete(order[k])) selected.add(order[k]);
    anchor = k;
  } else {
    selected.clear();
    selected.add(order[k]);
    anchor = k;
  }
  $('grid').focus({ preventScroll: true });
  draw();
}

function open(k) {
  if (order[k] === undefined) return;
  toggle(false);
  tell('open', order[k]);
}

// chosen returns the selected episodes, or the one at the cursor.
const chosen = () => (selected.size ? [...selected] : order.length ? [order[cursor]] : []);

const keys = {
  ArrowDown: (ev) => moveTo(cursor + 1, ev.shiftKey),
  ArrowUp: (ev) => moveTo(cursor - 1, ev.shiftKey),
  PageDown: (ev) => moveTo(cursor + page(), ev.shiftKey),
  PageUp: (ev) => moveTo(cursor - page(), ev.shiftKey),
  Home: (ev) => moveTo(0, ev.shiftKey),
  End: (ev) => moveTo(order.length - 1, ev.shiftKey),
  Enter: () => open(cursor),
  f: () => chosen().length && flags.dialog(chosen(), null),
  ' ': () => choose(cursor, { ctrlKey: true }),
  Escape: () => {
    if (!selected.size) toggle(false);
    selected.clear();
    draw();
  }
};
const page = () => Math.max(1, Math.floor($('grid').clientHeight / high) - 2);

// key handles a key while the table is shown. It reports whether the key is one of the table's.
export function key(ev) {
  if ((ev.ctrlKey || ev.metaKey) && ev.key === 'a') {
    for (const e of order) selected.add(e);
    draw();
  } else if (ev.ctrlKey || ev.metaKey || ev.altKey) return false;
  else if (/^[1-9]$/.test(ev.key)) flags.toggle(chosen(), Number(ev.key));
  else if (keys[ev.key]) keys[ev.key](ev);
  else return false;
  return true;
}

// reveal moves the cursor to the open episode and scrolls to it.
function reveal() {
  cursor = anchor = Math.max(0, place[state.e] ?? 0);
  $('grid').scrollTop = Math.max(0, cursor * high - $('grid').clientHeight / 2);
  draw();
}

// toggle shows the table instead of the episode, or the episode again.
export function toggle(yes = !state.table) {
  state.table = yes;
  document.body.classList.toggle('table', yes);
  $('sheet').hidden = !yes;
  $('table-button').setAttribute('aria-pressed', String(yes));
  $('charts').hidden = !yes;
  if (yes) {
    tell('pause');
    build();
    reveal();
    $('grid').focus({ preventScroll: true });
  }
  tell('table');
}

// chooser lists all columns by group, to show or hide them.
function chooser() {
  const shown = new Set(names()),
    groups = new Map();
  for (const c of listing().columns.all.values())
    groups.set(c.group, [...(groups.get(c.group) || []), c]);
  const box = (c) =>
    make(
      'label',
      { title: about(c) },
      make('input', {
        type: 'checkbox',
        checked: shown.has(c.name),
        onchange: (ev) => {
          if (ev.target.checked) shown.add(c.name);
          else shown.delete(c.name);
          state.cols = [...listing().columns.all.keys()].filter((n) => shown.has(n)).join(',');
          build();
          tell('table');
        }
      }),
      ' ' + c.label
    );
  $('chooser').replaceChildren(
    ...[...groups].map(([group, list]) =>
      make('fieldset', {}, make('legend', {}, group), ...list.map(box))
    )
  );
}

export function start() {
  $('table-button').onclick = () => toggle();
  $('flag-selected').onclick = () => flags.dialog(chosen(), null);
  $('unselect').onclick = () => keys.Escape();
  $('grid').addEventListener('scroll', () => requestAnimationFrame(draw), { passive: true });
  $('choose').addEventListener('toggle', () => $('choose').open && chooser());
  document.addEventListener('click', (ev) => {
    if (!$('choose').contains(ev.target)) $('choose').open = false;
  });
  $('colour').onchange = () => {
    state.colour = $('colour').value;
    listing().columns.need([state.colour].filter(Boolean));
    tell('colour');
  };
  addEventListener('resize', draw);
  if (state.table) toggle(true);
}

function refresh() {
  if (!listing()) return;
  choices($('colour'), 'no colour', state.colour);
  build();
}

on('order', () => {
  cursor = Math.min(cursor, Math.max(0, order.length - 1));
  draw();
});
on('listed', () => {
  refresh();
  if (state.table) reveal();
});
on('metrics', refresh);
on('theme', draw);
on('colour', () => tell('order'));
