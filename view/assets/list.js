// The list of episodes: only the rows in sight are in the page. Filters, order and a histogram work on columns of numbers.
import { $, css, frame, get, make, paint } from './api.js';
import { on, shown, state, tell } from './state.js';

const high = 52;
let lists = [], order = [], position = new Map(), bins = null;

// load reads the columns of a dataset, again until they are all there.
export async function load(s) {
  const n = shown.info.datasets[s].num_episodes;
  lists[s] ||= { done: 0, length: [], task: [], tasks: [], found: new Map() };
  for (let wait = 100; lists[s].done < n; wait = Math.min(2 * wait, 2000)) {
    const a = await get(`episodes?s=${s}`);
    Object.assign(lists[s], a, { lower: a.tasks.map((t) => t.toLowerCase()) });
    if (s === state.s) filter();
    if (a.done < n) await new Promise((r) => setTimeout(r, wait));
  }
  $('list').dataset.listed ||= Math.round(performance.now()); // for make view-bench
  doctor(s);
}

// doctor asks what was found, while it is looked for.
async function doctor(s, run = false) {
  for (;;) {
    const d = await get(`findings?s=${s}${run ? '&run=1' : ''}`);
    run = false;
    $('doctor').hidden = d.state !== 'no';
    if (d.state === 'running') $('doctor').textContent = 'doctor …';
    lists[s].found = new Map();
    for (const f of d.findings) if (f.episode >= 0 && f.severity !== 'info') lists[s].found.set(f.episode, (lists[s].found.get(f.episode) || 0) + 1);
    if (s === state.s) filter();
    if (d.state !== 'running') return;
    await new Promise((r) => setTimeout(r, 500));
  }
}

export const tasks = (s, e) => lists[s]?.tasks[lists[s].task[e]] ?? '';
export const index = (s, e) => lists[s]?.index?.[e] ?? e;
const flagsOf = (e) => (state.s === 0 ? shown.flags.filter((f) => f.episode_index === index(0, e)) : []);

export function filter() {
  const l = lists[state.s];
  if (!l) return;
  const q = state.q.trim().toLowerCase(), least = state.least === '' ? -1 : Number(state.least), most = state.most === '' ? Infinity : Number(state.most);
  const wanted = q && l.lower.map((t) => t.includes(q)), exact = /^\d+$/.test(q) ? Number(q) : -1, flagged = state.flagged && new Set(state.s === 0 ? shown.flags.map((f) => f.episode_index) : []);
  order = [];
  for (let e = 0; e < l.done; e++) {
    if (l.length[e] < least || l.length[e] > most || (q && !(wanted[l.task[e]] || index(state.s, e) === exact))) continue;
    if ((flagged && !flagged.has(index(state.s, e))) || (state.found && !l.found.has(e))) continue;
    order.push(e);
  }
  const by = { length: (a, b) => l.length[a] - l.length[b], '-length': (a, b) => l.length[b] - l.length[a], task: (a, b) => l.task[a] - l.task[b] }[state.sort];
  if (by) order.sort(by);
  position = new Map(order.map((e, i) => [e, i]));
  const n = shown.info.datasets[state.s].num_episodes;
  $('count').textContent = `${order.length} of ${n} episodes` + (l.done < n ? ` (${l.done} read)` : '');
  histogram(l);
  draw();
}

function histogram(l) {
  const canvas = $('histogram'), { g, w, h } = paint(canvas);
  let least = Infinity, most = 0;
  for (let e = 0; e < l.done; e++) { least = Math.min(least, l.length[e]); most = Math.max(most, l.length[e]); }
  if (!(most >= least)) return;
  const count = 40, all = new Uint32Array(count), kept = new Uint32Array(count), bin = (v) => Math.min(count - 1, Math.floor((v - least) / (most - least + 1) * count));
  for (let e = 0; e < l.done; e++) all[bin(l.length[e])]++;
  for (const e of order) kept[bin(l.length[e])]++;
  const top = Math.max(...all);
  bins = { least, width: (most - least + 1) / count, count };
  for (const [values, style] of [[all, css('--line')], [kept, css('--accent')]]) {
    g.fillStyle = style;
    values.forEach((v, i) => { if (v) g.fillRect(i * w / count, h - 12 - Math.max(1, v / top * (h - 13)), w / count - 1, Math.max(1, v / top * (h - 13))); });
  }
  g.fillStyle = css('--soft');
  g.font = '10px system-ui';
  g.fillText(String(least), 0, h - 1);
  g.textAlign = 'right';
  g.fillText(`${most} rows`, w, h - 1);
  canvas.ariaLabel = `histogram of lengths: ${least} to ${most} rows`;
}

const made = new Map(); // episode → element
function draw() {
  const list = $('list'), box = $('rows'), first = Math.max(0, Math.floor(list.scrollTop / high) - 3), last = Math.min(order.length, Math.ceil((list.scrollTop + list.clientHeight) / high) + 3);
  box.style.height = order.length * high + 'px';
  const keep = new Set();
  for (let i = first; i < last; i++) {
    const e = order[i], l = lists[state.s], flags = flagsOf(e), found = l.found.get(e) || 0, id = state.s + ':' + e;
    keep.add(id);
    const tags = [...flags.map((f) => '⚑ ' + (f.label || 'flagged')), found ? `△ ${found}` : ''].filter(Boolean).join(' '), text = tasks(state.s, e);
    let row = made.get(id);
    if (!row) {
      const thumb = make('canvas', { width: 58, height: 44, ariaHidden: 'true' }), name = make('span'), task = make('small'), tag = make('span', { className: 'tags' });
      row = make('div', { className: 'row', role: 'option', id: 'episode-' + state.s + '-' + e, onclick: () => tell('open', e) }, thumb, make('div', {}, name, tag, task));
      Object.assign(row, { parts: { thumb, name, task, tag } });
      made.set(id, row);
      box.append(row);
      thumbnail(id, e, thumb);
    }
    row.style.top = i * high + 'px';
    row.ariaSelected = String(e === state.e);
    row.ariaPosInSet = String(i + 1);
    row.ariaSetSize = String(order.length);
    row.parts.name.textContent = `${index(state.s, e)} · ${l.length[e]} rows `;
    row.parts.task.textContent = text;
    row.parts.tag.textContent = tags;
  }
  for (const [id, row] of made) if (!keep.has(id)) { row.remove(); made.delete(id); }
  list.setAttribute('aria-activedescendant', `episode-${state.s}-${state.e}`);
}

// Thumbnails wait until the list rests, and come two at a time.
const queue = [];
let running = 0;
function thumbnail(id, e, canvas) {
  const data = shown.info.datasets[state.s], camera = data.features.find((f) => f.kind === 'video' || f.kind === 'image');
  if (!camera) { canvas.hidden = true; return; }
  const row = camera.clock ? 0 : lists[state.s].length[e] >> 1, path = `e/${e}/frame/${encodeURIComponent(camera.key)}/${row}?w=96&s=${state.s}`;
  setTimeout(() => { if (made.get(id)?.contains(canvas)) { queue.push([id, path, canvas]); next(); } }, 150);
}

async function next() {
  if (running >= 2 || !queue.length) return;
  const [id, path, canvas] = queue.pop();
  if (!made.has(id)) { next(); return; }
  running++;
  try {
    const image = await frame(path);
    if (image) canvas.getContext('2d').drawImage(image, 0, 0, 58, 44);
  } catch { /* the episode says why when it is opened */ }
  running--;
  next();
}

// neighbour is the episode that stands n places on in the list.
export function neighbour(n) {
  const at = position.get(state.e);
  return order[Math.min(Math.max((at ?? (n > 0 ? -1 : 1)) + n, 0), order.length - 1)] ?? state.e;
}

// following is the next episode with findings.
export function following() {
  const l = lists[state.s], n = l.done;
  for (let k = 1; k <= n; k++) if (l.found.has((state.e + k) % n)) return (state.e + k) % n;
  return -1;
}

export function reveal() {
  const at = position.get(state.e), list = $('list');
  if (at != null && (at * high < list.scrollTop || (at + 1) * high > list.scrollTop + list.clientHeight)) list.scrollTop = at * high - list.clientHeight / 2;
  draw();
}

export function start() {
  const bind = (id, key, event = 'input') => {
    const x = $(id);
    if (x.type === 'checkbox') x.checked = state[key]; else x.value = state[key];
    x.addEventListener(event, () => { state[key] = x.type === 'checkbox' ? x.checked : x.value; $('list').scrollTop = 0; filter(); tell('filter'); });
  };
  for (const id of ['least', 'most', 'sort', 'flagged', 'found']) bind(id, id);
  bind('filter', 'q');
  $('list').addEventListener('scroll', () => requestAnimationFrame(draw), { passive: true });
  $('doctor').addEventListener('click', () => doctor(state.s, true));
  $('histogram').addEventListener('click', (ev) => {
    if (!bins) return;
    const from = bins.least + Math.floor(ev.offsetX / $('histogram').clientWidth * bins.count) * bins.width;
    [$('least').value, $('most').value] = state.least === String(Math.ceil(from)) ? ['', ''] : [Math.ceil(from), Math.floor(from + bins.width)];
    [state.least, state.most] = [$('least').value, $('most').value];
    filter();
    tell('filter');
  });
  addEventListener('resize', filter);
  on('flags', filter);
  on('theme', filter);
}
