// The episodes of a dataset, their filters, their order and the selection. The list and the table
// show them.
import { $, columns as read, get } from './api.js';
import { Columns } from './columns.js';
import { byEpisode, flagsOf } from './flags.js';
import { index, on, positionOf, shown, state, tell } from './state.js';

const sets = [];

// order holds the positions of the episodes that pass the filters. place maps a position to its
// place in the order, or -1. selected holds the positions that the user selected.
export let order = new Uint32Array(),
  place = new Int32Array();
export const selected = new Set();

const empty = () => ({ state: 'no', metrics: [], findings: [] });

// listing returns the data about the episodes of a dataset, or undefined if nothing was read.
export const listing = (s = state.s) => sets[s];
export const column = (name, s = state.s) => sets[s]?.columns.get(name || 'length');
export const task = (e, s = state.s) => sets[s]?.tasks[sets[s].task[e]] ?? '';

// load reads the columns of a dataset, repeatedly until they are complete.
export async function load(s) {
  const n = shown.info.datasets[s].num_episodes,
    l = (sets[s] ||= {
      done: 0,
      length: [],
      task: [],
      tasks: [],
      found: new Map(), // position → findings
      deviating: new Map(), // position and metric → message
      findings: [],
      doctor: 'no',
      quality: empty(),
      columns: new Columns(s)
    });
  for (let wait = 100; l.done < n; wait = Math.min(2 * wait, 2000)) {
    const a = await get(`episodes?s=${s}`);
    Object.assign(l, a, { lower: a.tasks.map((t) => t.toLowerCase()) });
    own(s);
    if (s === state.s) filter();
    if (a.done < n) await new Promise((r) => setTimeout(r, wait));
  }
  if (n === 0) own(s);
  if (s === state.s) tell('listed');
  doctor(s);
  quality(s);
}

// own makes the columns that need no metric.
function own(s) {
  const l = sets[s],
    names = l.tasks.map((t, i) => [t, i]).sort((a, b) => (a[0] < b[0] ? -1 : 1)),
    rank = [];
  names.forEach(([, i], k) => (rank[i] = k));
  const put = (name, title, unit, summary, values) =>
    l.columns.put({ name, title, unit, summary, group: 'episode' }, values);
  put('length', 'length', 'rows', 'number of rows', Float64Array.from(l.length));
  put('task', 'task', '', 'the first task', Float64Array.from(l.task, (t) => rank[t] ?? NaN));
  tallies(s);
}

// tallies counts the flags and the findings of each episode.
function tallies(s) {
  const l = sets[s],
    found = new Float64Array(l.done),
    flags = new Float64Array(l.done);
  for (const [e, list] of l.found) found[e] = list.length;
  if (s === 0)
    for (const [n, list] of byEpisode) {
      const e = positionOf(0, n);
      if (e >= 0) flags[e] = list.length;
    }
  const put = (name, summary, values) =>
    l.columns.put({ name, title: name, summary, group: 'episode' }, values);
  put('flags', 'number of flags', flags);
  put('findings', 'number of findings that are errors or warnings', found);
}

// poll asks for the state of a server job until it has ended.
async function poll(s, run, ask, take) {
  for (let again = true; again; run = '') {
    let d;
    try {
      d = await ask(run ? `&run=${run}` : '');
    } catch (e) {
      tell('problem', e.message);
      return;
    }
    take(d);
    if (s === state.s) filter();
    if ((again = d.state === 'running' || (run && d.state === 'no')))
      await new Promise((r) => setTimeout(r, 500));
  }
}

// findingsOf returns the findings of the doctor and of the metrics.
export const findingsOf = (l) => [...l.findings, ...l.quality.findings];

// count assigns the findings of the doctor and of the metrics to the episodes.
function count(s) {
  const l = sets[s];
  l.found = new Map();
  l.deviating = new Map();
  for (const f of findingsOf(l))
    if (f.episode >= 0 && f.severity !== 'info') {
      const e = positionOf(s, f.episode);
      if (!l.found.has(e)) l.found.set(e, []);
      l.found.get(e).push(f);
      if (f.where?.metric) l.deviating.set(`${e} ${f.where.metric}`, f.message);
    }
  tallies(s);
}

export const doctor = (s, run = '') =>
  poll(
    s,
    run,
    (more) => get(`findings?s=${s}${more}`),
    (d) => {
      Object.assign(sets[s], { doctor: d.state, findings: d.findings });
      count(s);
    }
  );

// quality reads the list of the metrics. With run it starts to measure them.
export const quality = (s, run = '') =>
  poll(
    s,
    run,
    (more) => get(`quality?s=${s}${more}`),
    (d) => {
      const l = sets[s],
        isNew = l.quality.state !== d.state;
      l.quality = d;
      if (isNew && d.state === 'done') {
        l.columns.metrics(d.metrics);
        count(s);
        tell('metrics');
      }
    }
  );

// where evaluates the expression on the server. The mask holds 1 for each episode that it accepts.
// ranges holds the times, in ns, that an expression about rows finds in each episode.
let asking = null;
export async function where() {
  asking?.abort();
  const text = state.where.trim(),
    l = sets[state.s],
    mine = (asking = new AbortController()),
    say = (problem) => tell('where', problem);
  Object.assign(l, { mask: null, ranges: new Map() });
  if (!text) {
    say(null);
    filter();
    return;
  }
  say('…');
  try {
    const a = await read(`where?s=${state.s}&expr=${encodeURIComponent(text)}`, {
        signal: mine.signal
      }),
      mask = new Uint8Array(shown.info.datasets[state.s].num_episodes);
    const [found = [], from, to] = a.columns;
    found.forEach((e, i) => {
      mask[e] = 1;
      if (from) l.ranges.set(e, [...(l.ranges.get(e) || []), [from[i] * 1e9, to[i] * 1e9]]);
    });
    l.mask = mask;
    say(null);
  } catch (e) {
    if (mine.signal.aborted) return;
    say(e);
  }
  filter();
  tell('found');
}

// tests returns the conditions that an episode must fulfill.
function tests(l) {
  const out = [],
    q = state.q.trim().toLowerCase(),
    least = state.least === '' ? -Infinity : Number(state.least),
    most = state.most === '' ? Infinity : Number(state.most),
    v = column(state.by)?.values;
  if (v && (least > -Infinity || most < Infinity)) out.push((e) => v[e] >= least && v[e] <= most);
  if (q) {
    const wanted = l.lower.map((t) => t.includes(q)),
      exact = /^\d+$/.test(q) ? Number(q) : -1;
    out.push((e) => wanted[l.task[e]] || index(state.s, e) === exact);
  }
  if (l.mask) out.push((e) => l.mask[e]);
  if (state.flagged) out.push((e) => flagsOf(e).length > 0);
  if (state.found) out.push((e) => l.found.has(e));
  return out;
}

// filter computes the order, and tells 'order'.
export function filter() {
  const l = sets[state.s];
  if (!l) return;
  l.columns.need([state.by, state.colour].filter(Boolean));
  const checks = tests(l),
    by = state.sort && column(state.sort === 'task' ? 'task' : state.by),
    next = new Uint32Array(l.done);
  let n = 0;
  const add = (e) => {
    for (const check of checks) if (!check(e)) return;
    next[n++] = e;
  };
  if (by?.values)
    (state.sort === 'down' ? by.falling() : by.ranking().order).forEach((e) => add(e));
  else for (let e = 0; e < l.done; e++) add(e);
  order = next.subarray(0, n);
  place = new Int32Array(l.done).fill(-1);
  for (let k = 0; k < n; k++) place[order[k]] = k;
  tell('order');
}

// neighbour returns the episode that is n places further down the list.
export function neighbour(n) {
  const at = place[state.e] ?? -1,
    from = at >= 0 ? at : n > 0 ? -1 : 1;
  return order[Math.min(Math.max(from + n, 0), order.length - 1)] ?? state.e;
}

// following returns the next episode with findings, or -1.
export function following() {
  const l = sets[state.s],
    n = l?.done ?? 0;
  for (let k = 1; k <= n; k++) if (l.found.has((state.e + k) % n)) return (state.e + k) % n;
  return -1;
}

on('columns', filter);
on('flags', () => {
  if (!sets[0]) return;
  tallies(0);
  filter();
});
$('doctor').addEventListener('click', () => doctor(state.s, '1'));
$('measure').addEventListener('click', () => quality(state.s, '1'));
