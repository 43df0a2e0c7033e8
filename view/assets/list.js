// The list of episodes. The page contains elements only for the visible rows. Filters, order and
// histogram work on columns of numbers.
import { $, columns, css, frame, get, icon, make, paint } from './api.js';
import { index, positionOf, on, shown, state, tell } from './state.js';

const high = 52;
let lists = [],
  order = [],
  position = new Map(),
  bins = null;

// The measures for the histogram, the limits and the order. Each has a column of values, a text for
// a value, and possibly a logarithmic scale.
const measures = {
  '': { of: (l) => l.length, text: (v) => `${v} rows`, name: 'length' },
  jerk: {
    of: (l) => l.jerk,
    text: (v) => `jerk ${Number(v.toPrecision(3))}`,
    name: 'jerk',
    log: true
  },
  idle: { of: (l) => l.idle, text: (v) => `${Number(v.toFixed(1))} % idle`, name: 'idle share' }
};
const measure = () => measures[state.by] || measures[''];

// load reads the columns of a dataset, repeatedly until they are complete.
export async function load(s) {
  const n = shown.info.datasets[s].num_episodes;
  lists[s] ||= { done: 0, length: [], task: [], tasks: [], found: new Map(), jerk: [], idle: [] };
  for (let wait = 100; lists[s].done < n; wait = Math.min(2 * wait, 2000)) {
    const a = await get(`episodes?s=${s}`);
    Object.assign(lists[s], a, { lower: a.tasks.map((t) => t.toLowerCase()) });
    if (s === state.s) filter();
    if (a.done < n) await new Promise((r) => setTimeout(r, wait));
  }
  if (s === state.s) reveal();
  $('list').dataset.listed ||= Math.round(performance.now()); // for make view-bench
  doctor(s);
  moves(s, !!state.by);
}

// poll asks for the state of a server job until it has ended.
async function poll(s, run, ask, take) {
  for (let again = true; again; run = false) {
    let d;
    try {
      d = await ask(run ? '&run=1' : '');
    } catch (e) {
      $('problem').hidden = false;
      $('problem').textContent = e.message;
      return;
    }
    take(d);
    if (s === state.s) filter();
    if ((again = d.state === 'running' || (run && d.state === 'no')))
      await new Promise((r) => setTimeout(r, 500));
  }
}

const doctor = (s, run = false) =>
  poll(
    s,
    run,
    (more) => get(`findings?s=${s}${more}`),
    (d) => {
      $('doctor').hidden = d.state !== 'no';
      lists[s].found = new Map();
      for (const f of d.findings)
        if (f.episode >= 0 && f.severity !== 'info') {
          const e = positionOf(s, f.episode);
          lists[s].found.set(e, (lists[s].found.get(e) || 0) + 1);
        }
    }
  );

// moves requests the jerk and the idle share of each episode.
const moves = (s, run) =>
  poll(
    s,
    run,
    (more) => columns(`measures?s=${s}${more}`).then((a) => ({ ...a.header, columns: a.columns })),
    (d) => {
      if (d.columns.length)
        [lists[s].jerk, lists[s].idle] = [d.columns[0], d.columns[1].map((v) => 100 * v)];
      lists[s].measuring =
        d.problem || (d.state === 'running' ? `measured ${d.done} of ${d.total}` : '');
    }
  );

export const tasks = (s, e) => lists[s]?.tasks[lists[s].task[e]] ?? '';
const flagsOf = (e) =>
  state.s === 0 ? shown.flags.filter((f) => f.episode_index === index(0, e)) : [];

export function filter() {
  const l = lists[state.s];
  if (!l) return;
  const q = state.q.trim().toLowerCase(),
    least = state.least === '' ? -1 : Number(state.least),
    most = state.most === '' ? Infinity : Number(state.most);
  const wanted = q && l.lower.map((t) => t.includes(q)),
    exact = /^\d+$/.test(q) ? Number(q) : -1,
    flagged =
      state.flagged && new Set(state.s === 0 ? shown.flags.map((f) => f.episode_index) : []);
  const m = measure(),
    v = m.of(l),
    limited = least >= 0 || most < Infinity;
  order = [];
  for (let e = 0; e < l.done; e++) {
    if (
      (limited && !(v[e] >= least && v[e] <= most)) ||
      (q && !(wanted[l.task[e]] || index(state.s, e) === exact))
    )
      continue;
    if ((flagged && !flagged.has(index(state.s, e))) || (state.found && !l.found.has(e))) continue;
    order.push(e);
  }
  const by = {
    up: (a, b) => v[a] - v[b] || 0,
    down: (a, b) => v[b] - v[a] || 0,
    task: (a, b) => l.task[a] - l.task[b]
  }[state.sort];
  if (by) order.sort(by);
  position = new Map(order.map((e, i) => [e, i]));
  const n = shown.info.datasets[state.s].num_episodes;
  $('count').textContent =
    `${order.length} of ${n} episodes` +
    (l.done < n ? ` (${l.done} read)` : '') +
    (state.by && l.measuring ? ` · ${l.measuring}` : '');
  histogram(m, v, l.done);
  draw();
}

function histogram(m, v, n) {
  const canvas = $('histogram'),
    { g, w, h } = paint(canvas),
    to = m.log ? (x) => Math.log10(Math.max(x, 1e-9)) : (x) => x;
  let least = Infinity,
    most = -Infinity;
  for (let e = 0; e < n; e++)
    if (v[e] >= 0) {
      least = Math.min(least, to(v[e]));
      most = Math.max(most, to(v[e]));
    }
  bins = null;
  if (!(most >= least)) return;
  const count = 40,
    width = (most - least) / count || 1,
    all = new Uint32Array(count),
    kept = new Uint32Array(count),
    add = (bars, e) => {
      if (v[e] >= 0) bars[Math.min(count - 1, Math.floor((to(v[e]) - least) / width))]++;
    };
  for (let e = 0; e < n; e++) add(all, e);
  for (const e of order) add(kept, e);
  const top = Math.max(...all),
    back = m.log ? (x) => 10 ** x : (x) => x;
  bins = { count, at: (i) => Number(back(least + i * width).toPrecision(6)) };
  for (const [bars, style] of [
    [all, css('--line')],
    [kept, css('--accent')]
  ]) {
    g.fillStyle = style;
    bars.forEach((x, i) => {
      if (x)
        g.fillRect(
          (i * w) / count,
          h - 12 - Math.max(1, (x / top) * (h - 13)),
          w / count - 1,
          Math.max(1, (x / top) * (h - 13))
        );
    });
  }
  g.fillStyle = css('--soft');
  g.font = '10px system-ui';
  // The canvas keeps the alignment of the previous text.
  g.textAlign = 'left';
  g.fillText(m.text(back(least)), 0, h - 1);
  g.textAlign = 'right';
  g.fillText(m.text(back(most)), w, h - 1);
  canvas.ariaLabel = `histogram of the ${m.name}: ${m.text(back(least))} to ${m.text(back(most))}`;
}

const made = new Map(); // episode → element
function draw() {
  const list = $('list'),
    box = $('rows'),
    first = Math.max(0, Math.floor(list.scrollTop / high) - 3),
    last = Math.min(order.length, Math.ceil((list.scrollTop + list.clientHeight) / high) + 3);
  box.style.height = order.length * high + 'px';
  const keep = new Set();
  for (let i = first; i < last; i++) {
    const e = order[i],
      l = lists[state.s],
      flags = flagsOf(e),
      found = l.found.get(e) || 0,
      id = state.s + ':' + e;
    keep.add(id);
    const tags = [
        ...flags.flatMap((f) => [icon('flag'), ' ' + (f.label || 'flagged') + ' ']),
        ...(found ? [icon('finding'), ` ${found}`] : [])
      ],
      text = tasks(state.s, e);
    let row = made.get(id);
    if (!row) {
      const thumb = make('canvas', { width: 58, height: 44, ariaHidden: 'true' }),
        name = make('span'),
        task = make('small'),
        tag = make('span', { className: 'tags' });
      row = make(
        'div',
        {
          className: 'row',
          role: 'option',
          id: 'episode-' + state.s + '-' + e,
          onclick: () => tell('open', e)
        },
        thumb,
        make('div', {}, name, tag, task)
      );
      Object.assign(row, { parts: { thumb, name, task, tag } });
      made.set(id, row);
      box.append(row);
      thumbnail(id, e, thumb);
    }
    row.style.top = i * high + 'px';
    row.ariaSelected = String(e === state.e);
    row.ariaPosInSet = String(i + 1);
    row.ariaSetSize = String(order.length);
    row.parts.name.textContent =
      `${index(state.s, e)} · ${l.length[e]} rows ` +
      (state.by && measure().of(l)[e] >= 0 ? `· ${measure().text(measure().of(l)[e])} ` : '');
    row.parts.task.textContent = text;
    row.parts.tag.title = found ? `${found} findings` : '';
    row.parts.tag.replaceChildren(...tags);
  }
  for (const [id, row] of made)
    if (!keep.has(id)) {
      row.remove();
      made.delete(id);
    }
  list.setAttribute('aria-activedescendant', `episode-${state.s}-${state.e}`);
}

// Thumbnails are requested when scrolling stops, two at a time.
const queue = [];
let running = 0;
function thumbnail(id, e, canvas) {
  const data = shown.info.datasets[state.s],
    camera = data.features.find((f) => f.kind === 'video' || f.kind === 'image');
  if (!camera) {
    canvas.hidden = true;
    return;
  }
  const row = camera.clock ? 0 : lists[state.s].length[e] >> 1,
    path = `e/${index(state.s, e)}/frame/${encodeURIComponent(camera.key)}/${row}?w=96&s=${state.s}`;
  setTimeout(() => {
    if (made.get(id)?.contains(canvas)) {
      queue.push([id, path, canvas]);
      next();
    }
  }, 150);
}

async function next() {
  if (running >= 2 || !queue.length) return;
  const [id, path, canvas] = queue.pop();
  if (!made.has(id)) {
    next();
    return;
  }
  running++;
  try {
    const image = await frame(path);
    if (image) canvas.getContext('2d').drawImage(image, 0, 0, 58, 44);
  } catch {
    /* the episode says why when it is opened */
  }
  running--;
  next();
}

// neighbour returns the episode that is n places further down the list.
export function neighbour(n) {
  const at = position.get(state.e);
  return order[Math.min(Math.max((at ?? (n > 0 ? -1 : 1)) + n, 0), order.length - 1)] ?? state.e;
}

// following returns the next episode with findings, or -1.
export function following() {
  const l = lists[state.s],
    n = l.done;
  for (let k = 1; k <= n; k++) if (l.found.has((state.e + k) % n)) return (state.e + k) % n;
  return -1;
}

export function reveal() {
  const at = position.get(state.e),
    list = $('list');
  if (
    at != null &&
    (at * high < list.scrollTop || (at + 1) * high > list.scrollTop + list.clientHeight)
  )
    list.scrollTop = at * high - list.clientHeight / 2;
  draw();
}

function limits(least, most) {
  [state.least, state.most] = [$('least').value, $('most').value] = [least, most];
}

export function start() {
  const bind = (id, key, event = 'input') => {
    const x = $(id);
    if (x.type === 'checkbox') x.checked = state[key];
    else x.value = state[key];
    x.addEventListener(event, () => {
      state[key] = x.type === 'checkbox' ? x.checked : x.value;
      $('list').scrollTop = 0;
      if (key === 'by') limits('', '');
      filter();
      tell('filter');
    });
  };
  for (const id of ['least', 'most', 'sort', 'flagged', 'found', 'by']) bind(id, id);
  bind('filter', 'q');
  $('list').addEventListener('scroll', () => requestAnimationFrame(draw), { passive: true });
  $('doctor').addEventListener('click', () => doctor(state.s, true));
  $('histogram').addEventListener('click', (ev) => {
    if (!bins) return;
    const i = Math.min(
        bins.count - 1,
        Math.floor((ev.offsetX / $('histogram').clientWidth) * bins.count)
      ),
      [a, b] = [bins.at(i), bins.at(i + 1)],
      whole = !state.by;
    const from = String(whole ? Math.ceil(a) : a);
    if (state.least === from) limits('', '');
    else
      limits(from, String(whole ? Math.max(Math.ceil(a), Math.ceil(b) - (i < bins.count - 1)) : b));
    filter();
    tell('filter');
  });
  $('by').addEventListener('input', () => {
    if (state.by) moves(state.s, true);
  });
  addEventListener('resize', filter);
  on('flags', filter);
  on('theme', filter);
}
