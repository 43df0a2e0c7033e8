// The state of the page is one object. It is stored in the address (#e=12&r=104&z=…). on registers
// listeners, and tell calls them after a change.

export const state = {
  // dataset, position of the episode (the address has its index), ns from the start of the episode
  s: 0,
  e: 0,
  t: 0,
  zoom: null, // [from, to] in ns; null: the whole episode
  hidden: new Set(), // keys of streams that are not shown
  channels: {}, // key → set of channels that are not drawn
  compare: null, // { s, e }
  hz: '',
  q: '',
  by: '',
  least: '',
  most: '',
  sort: '',
  where: '',
  colour: '',
  cols: '',
  table: false,
  flagged: false,
  found: false,
  speed: 1,
  playing: false
};

// words and switches are the keys of the state that the address holds as they are.
const words = ['hz', 'q', 'by', 'least', 'most', 'sort', 'where', 'colour', 'cols'],
  switches = ['flagged', 'found', 'table'];

// quiet are the events after which the address stays the same.
const quiet = new Set(['address', 'columns', 'found', 'listed', 'metrics', 'order', 'problem', 'values', 'where']);

const told = {};
export const on = (what, fn) => {
  (told[what] ||= []).push(fn);
};
export const tell = (what, ...args) => {
  for (const fn of told[what] || []) fn(...args);
  if (!quiet.has(what)) save();
};

// shown holds the episode on the page, the one to compare with (see episode.js), and data from the
// server.
export const shown = { first: null, second: null, info: null, findings: [], flags: [] };

// index returns the index of an episode, which people see and the server uses. positionOf returns
// the position of the episode with an index, or -1.
export const index = (s, e) => shown.info?.datasets[s]?.episode_index?.[e] ?? e;
export function positionOf(s, n) {
  const set = shown.info.datasets[s];
  return !set
    ? -1
    : set.episode_index
      ? set.episode_index.indexOf(n)
      : n < set.num_episodes
        ? n
        : -1;
}

let saving = 0;
function save() {
  clearTimeout(saving);
  saving = setTimeout(() => {
    if (!state.playing) history.replaceState(null, '', '#' + address());
  }, 150);
}

export function address() {
  const p = new URLSearchParams();
  const put = (k, v) => {
    if (v !== '' && v != null && v !== false) p.set(k, v === true ? '1' : v);
  };
  if (state.s) put('s', state.s);
  p.set('e', index(state.s, state.e));
  const a = shown.first?.anchor,
    r = a ? shown.first.row(a.key, state.t) : -1;
  if (a && r >= 0 && a.times[r] === state.t) put('r', r);
  else if (state.t) put('t', state.t);
  if (state.zoom) put('z', state.zoom.map(Math.round).join(','));
  if (state.hidden.size) put('k', [...state.hidden].map(encodeURIComponent).join(','));
  const ch = Object.entries(state.channels)
    .filter(([, v]) => v.size)
    .map(([k, v]) => encodeURIComponent(k) + ':' + [...v].join('.'));
  if (ch.length) put('ch', ch.join(','));
  if (state.compare) put('c', state.compare.s + ':' + index(state.compare.s, state.compare.e));
  for (const k of [...words, ...switches]) put(k, state[k]);
  if (state.speed !== 1) put('v', state.speed);
  return p.toString();
}

// read parses the state from an address, which names episodes by index. start converts them to
// positions. The row is applied when the episode is loaded.
export function read(text) {
  const p = new URLSearchParams(text),
    number = (k) => {
      const v = Number(p.get(k));
      return Number.isFinite(v) ? v : 0;
    };
  state.s = number('s');
  state.e = number('e');
  state.row = p.has('r') ? number('r') : null;
  state.t = p.has('t') ? number('t') : null; // null: see Episode.opening
  const z = (p.get('z') || '').split(',').map(Number);
  state.zoom = z.length === 2 && z.every(Number.isFinite) && z[1] > z[0] ? z : null;
  const list = (k) => (p.get(k) || '').split(',').filter(Boolean);
  const plain = (x) => {
    try {
      return decodeURIComponent(x);
    } catch {
      return x;
    }
  };
  state.hidden = new Set(list('k').map(plain));
  state.channels = Object.fromEntries(
    list('ch').map((x) => [
      plain(x.split(':')[0]),
      new Set((x.split(':')[1] || '').split('.').map(Number))
    ])
  );
  const c = (p.get('c') || '').split(':').map(Number);
  state.compare = c.length === 2 && c.every(Number.isInteger) ? { s: c[0], e: c[1] } : null;
  for (const k of words) state[k] = p.get(k) || '';
  for (const k of switches) state[k] = p.get(k) === '1';
  state.speed = number('v') || 1;
}
