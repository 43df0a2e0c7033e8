// The page: login, the open episode, time, keys and flags.
import * as annotations from './annotations.js';
import { $, get, icon, make, post } from './api.js';
import './cameras.js';
import * as charts from './charts.js';
import { showDiff } from './diff.js';
import { showDataset } from './dataset.js';
import { Episode } from './episode.js';
import * as episodes from './episodes.js';
import * as flags from './flags.js';
import { showFindings } from './lanes.js';
import * as list from './list.js';
import * as panels from './panels.js';
import './plots.js';
import * as table from './table.js';
import { index, positionOf, on, read, shown, state, tell } from './state.js';

const speeds = [0.1, 0.25, 0.5, 1, 2, 4, 8];
const keys = [
  ['Space', 'play, pause'],
  ['← →', 'row before, next row (of the first camera, or the fastest stream); with Shift 10'],
  ['↑ ↓', 'episode before, next episode of the list'],
  ['Home End', 'begin, end of the episode'],
  ['f', 'flag, with a note'],
  ['a', 'annotate the zoomed rows'],
  ['1 … 9', 'flag as ' + flags.labels.join(', ') + '; the same key again takes it back'],
  ['n', 'next finding'],
  ['t', 'table of episodes: arrows, Shift, Space and Ctrl A select, Enter opens'],
  ['/', 'filter'],
  [', .', 'slower, faster'],
  ['z', 'whole episode'],
  ['?', 'this list']
];

function problem(text) {
  $('problem').hidden = !text;
  $('problem').textContent = text || '';
}

// open loads and shows an episode. If it is called again, only the newest call takes effect.
let opening = 0;
async function open() {
  const mine = ++opening,
    { s, e } = state;
  if (e < 0) {
    empty();
    return;
  }
  document.body.dataset.ready = '';
  play(false);
  try {
    const [first, second, aligned] = await Promise.all([
      Episode.load(shown.info, s, e),
      state.compare ? Episode.load(shown.info, state.compare.s, state.compare.e) : null,
      state.hz ? Episode.load(shown.info, s, e, state.hz).catch((err) => err) : null
    ]);
    if (mine !== opening) return;
    second?.moveTo(first);
    Object.assign(shown, { first, second, aligned: aligned instanceof Error ? null : aligned });
    problem(aligned instanceof Error ? aligned.message : first.problem);
  } catch (err) {
    if (mine === opening) problem(err.message);
    return;
  }
  const { first } = shown;
  if (state.row != null && first.anchor)
    state.t = first.anchor.times[Math.min(state.row, first.anchor.rows - 1)] ?? 0;
  state.row = null;
  const [from, to] = panels.bounds();
  state.t = Math.min(Math.max(state.t ?? first.opening(), from), to);
  [$('range').min, $('range').max] = [from, to];
  const rest = panels.show();
  tell('shown');
  title();
  list.reveal();
  tell('t');
  await rest;
  if (mine !== opening) return;
  document.body.dataset.ready = `${s}:${e}`;
  await Promise.all([showFindings(), showDiff()]);
  document.body.dataset.done = `${s}:${e}`;
}

// empty shows a dataset without episodes.
function empty() {
  problem('the dataset has no episodes');
  for (const id of ['play', 'back', 'next', 'range', 'flag']) $(id).disabled = true;
  document.body.dataset.ready = document.body.dataset.done = `${state.s}:none`;
}

function title() {
  const x = shown.first,
    n = index(x.s, x.e);
  $('episode').textContent =
    `episode ${n} · ${x.length} rows` +
    (x.timeless ? ' · no clock: the axis is rows' : ` · ${x.seconds(x.duration, 2)}`);
  $('task').textContent = (x.about.episode.tasks || []).join(' | ');
  $('flags').replaceChildren(
    ...flags.flagsOf(x.e).flatMap((f) => [
      icon('flag'),
      ' ' +
        (f.label || 'flagged') +
        (f.rows ? ` rows ${f.rows[0]}–${f.rows[1]}` : '') +
        (f.note ? `: ${f.note}` : '') +
        '  '
    ])
  );
  $('unzoom').hidden = !state.zoom;
  $('compare').value = state.compare
    ? (state.compare.s !== state.s ? state.compare.s + ':' : '') +
      index(state.compare.s, state.compare.e)
    : '';
  $('hz').value = state.hz;
  document.title = `episode ${n} – robocache view`;
}

function seek(t) {
  const [from, to] = panels.bounds();
  state.t = Math.min(Math.max(Math.round(t), from), to);
  tell('t');
}

on('seek', seek);
on('t', () => {
  const x = shown.first,
    a = x.anchor,
    r = a ? x.row(a.key, state.t) : -1;
  $('range').value = state.t;
  $('clock').textContent = x.timeless
    ? `row ${r < 0 ? '–' : r} of ${a?.rows ?? 0}`
    : `${x.seconds(state.t)} of ${x.seconds(x.duration, 2)}` +
      (a ? ` · row ${r < 0 ? '–' : r} of ${a.rows}` : '');
  $('range').ariaValueText = $('clock').textContent;
});
on('zoom', title);
on('flags', () => {
  if (shown.first) title();
});
on('open', (e) => {
  document.body.classList.remove('list-open');
  if (e === state.e) return;
  Object.assign(state, { e, t: null, zoom: null });
  visited = null;
  open();
});
on('pair', (pair) => {
  state.compare = pair;
  open();
});
on('streams', panels.show);
on('pause', () => play(false));
on('problem', problem);

// play starts or stops playback, which advances the time of the page with the system clock.
let last = 0;
function play(yes) {
  if (yes === state.playing) return;
  state.playing = yes;
  $('play').replaceChildren(icon(yes ? 'pause' : 'play'));
  $('play').ariaLabel = yes ? 'pause' : 'play';
  const [from, to] = panels.bounds();
  if (yes && state.t >= to) seek(from);
  if (!yes && shown.first?.anchor)
    state.t = shown.first.step(state.t, 0) <= state.t ? shown.first.step(state.t, 0) : state.t;
  tell('playing');
  tell('t');
  last = 0;
  if (yes) requestAnimationFrame(tick);
}

function tick(now) {
  if (!state.playing) return;
  if (last) seek(state.t + (now - last) * 1e6 * state.speed * (shown.first.timeless ? 30 : 1));
  last = now;
  if (state.t >= panels.bounds()[1]) play(false);
  else requestAnimationFrame(tick);
}

const step = (n) => {
  play(false);
  seek(shown.first.step(state.t, n));
};
function faster(n) {
  const at = speeds.indexOf(state.speed);
  state.speed = speeds[Math.min(Math.max((at < 0 ? 3 : at) + n, 0), speeds.length - 1)];
  $('speed').value = state.speed;
  tell('speed');
}

// flagDialog flags the episode, or the rows of the zoomed time.
function flagDialog() {
  const x = shown.first,
    [from, to] = state.zoom || [],
    fits = state.zoom && x.anchor && x.anchor.rows === x.length;
  flags.dialog(
    [state.e],
    fits ? [Math.max(0, x.row(x.anchor.key, from)), x.row(x.anchor.key, to) + 1] : null
  );
}

function help() {
  $('help').replaceChildren(
    make('h2', {}, 'Keys'),
    make(
      'table',
      {},
      ...keys.map(([k, what]) =>
        make('tr', {}, make('th', { scope: 'row' }, make('kbd', {}, k)), make('td', {}, what))
      )
    ),
    make(
      'p',
      {},
      'Plots: click goes to a time, drag zooms, double click shows all, Ctrl and wheel zooms. The address holds what is shown.'
    ),
    make('form', { method: 'dialog' }, make('button', {}, 'close'))
  );
  $('help').showModal();
}

// finding moves to the next finding of the episode: first those with a time, in order, then the
// others. After the last one it opens the next episode with findings.
let visited = null;
function finding() {
  const late = (f) => f.t_ns ?? Infinity,
    own = shown.findings
      .filter((f) => f.episode >= 0 && (f.severity !== 'info' || f.t_ns != null))
      .sort((a, b) => late(a) - late(b) || 0);
  const at = own.indexOf(visited),
    stays = at >= 0 && (visited.t_ns == null || visited.t_ns === state.t);
  const next = stays
    ? own[at + 1]
    : own.find((f) => (visited ? late(f) > state.t : late(f) >= state.t));
  if (next) {
    visit(next);
    return;
  }
  const e = episodes.following();
  if (e >= 0 && e !== state.e) tell('open', e);
  else if (own.length) visit(own[0]);
}

function visit(f) {
  visited = f;
  play(false);
  if (f.t_ns != null) seek(f.t_ns);
  $('findings-box').open = true;
  for (const li of $('findings').children)
    li.classList.toggle('current', li.id === 'finding-' + shown.findings.indexOf(f));
  if (f.t_ns == null) $('findings').querySelector('.current')?.scrollIntoView({ block: 'nearest' });
}

const actions = {
  ' ': () => play(!state.playing),
  ArrowLeft: (ev) => step(ev.shiftKey ? -10 : -1),
  ArrowRight: (ev) => step(ev.shiftKey ? 10 : 1),
  ArrowUp: () => tell('open', episodes.neighbour(-1)),
  ArrowDown: () => tell('open', episodes.neighbour(1)),
  Home: () => seek(panels.bounds()[0]),
  End: () => seek(panels.bounds()[1]),
  f: flagDialog,
  a: annotations.annotate,
  n: finding,
  '/': () => $('filter').focus(),
  ',': () => faster(-1),
  '.': () => faster(1),
  z: () => {
    state.zoom = null;
    tell('zoom');
  },
  t: () => table.toggle(),
  '?': help,
  Escape: () => document.activeElement.blur()
};

addEventListener('keydown', (ev) => {
  if (document.querySelector('dialog[open]') || !shown.first) return;
  const field = ev.target.matches?.(
    'input:not([type=range]):not([type=checkbox]), select, textarea'
  );
  if (field && ev.key !== 'Escape') return;
  // The space key activates the focused element instead.
  if (/^( |Enter)$/.test(ev.key) && ev.target.matches?.('button, summary, input')) return;
  if (state.table && !field && table.key(ev)) {
    ev.preventDefault();
    return;
  }
  if (ev.ctrlKey || ev.metaKey || ev.altKey) return;
  if (/^[1-9]$/.test(ev.key)) flags.toggle([state.e], Number(ev.key));
  else if (actions[ev.key]) actions[ev.key](ev);
  else return;
  ev.preventDefault();
});

function wire() {
  $('speed').append(...speeds.map((v) => make('option', { value: v }, v + '×')));
  $('speed').value = state.speed;
  $('speed').onchange = () => {
    state.speed = Number($('speed').value);
    tell('speed');
  };
  for (const id of ['play', 'back', 'next', 'theme']) $(id).replaceChildren(icon(id));
  $('play').onclick = () => play(!state.playing);
  $('back').onclick = () => step(-1);
  $('next').onclick = () => step(1);
  $('range').oninput = () => {
    play(false);
    const t = Number($('range').value);
    seek(shown.first.anchor ? shown.first.step(t, 0) : t);
  };
  $('flag').onclick = flagDialog;
  $('unzoom').onclick = actions.z;
  $('help-button').onclick = help;
  $('about-button').onclick = showDataset;
  $('list-button').onclick = () => {
    const open = document.body.classList.toggle('list-open');
    $('list-button').ariaExpanded = String(open);
    tell('order');
  };
  $('hz').onchange = () => {
    state.hz = $('hz').value.trim();
    open();
  };
  $('compare').onchange = () => {
    const m = /^(?:(\d+):)?(\d+)$/.exec($('compare').value.trim());
    const s = m?.[1] ? Number(m[1]) : state.s,
      e = m ? positionOf(s, Number(m[2])) : -1;
    state.compare = e >= 0 ? { s, e } : null;
    open();
  };
  $('theme').onclick = () => {
    theme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark');
    localStorage.setItem('theme', document.documentElement.dataset.theme);
  };
  const sets = shown.info.datasets;
  $('dataset').textContent =
    `${sets[state.s].uri} · ${sets[state.s].format} ${sets[state.s].version}`;
  if (sets.length > 1) {
    $('which').hidden = false;
    $('which').append(...sets.map((x, i) => make('option', { value: i }, x.uri)));
    $('which').value = state.s;
    $('which').onchange = () => {
      Object.assign(state, { s: Number($('which').value), t: null, zoom: null, compare: null });
      state.e = Math.min(state.e, sets[state.s].num_episodes - 1);
      location.hash = '';
      tell('filter');
      setTimeout(() => location.reload(), 200);
    };
  }
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  tell('theme');
}

async function start() {
  theme(
    localStorage.getItem('theme') ||
      (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')
  );
  const p = new URLSearchParams(location.hash.slice(1));
  // Remove the token from the address and the history.
  if (p.has('token')) {
    const token = p.get('token');
    p.delete('token');
    history.replaceState(null, '', '#' + p);
    try {
      await post('login', { token });
    } catch (e) {
      problem(e.message);
      return;
    }
  }
  read(p.toString());
  // Request the episode while the other answer is on its way.
  Episode.early(state.s, state.e);
  try {
    shown.info = await get('info');
  } catch (e) {
    problem(e.message);
    return;
  }
  const sets = shown.info.datasets;
  if (sets.some((x) => x.features.some((f) => f.kind === 'pointcloud'))) await import('./cloud.js');
  state.s = Math.min(Math.max(0, state.s), sets.length - 1);
  state.e = sets[state.s].num_episodes > 0 ? Math.max(0, positionOf(state.s, state.e)) : -1;
  if (!p.has('hz') && shown.info.hz) state.hz = shown.info.hz;
  if (state.compare) state.compare.e = positionOf(state.compare.s, state.compare.e);
  if (state.compare?.e < 0) state.compare = null;
  if (!p.has('e') && !p.has('c') && sets.length > 1 && sets[1].num_episodes > 0)
    state.compare = { s: 1, e: Math.min(Math.max(0, state.e), sets[1].num_episodes - 1) };
  const opened = open();
  // Let the requests for frames start first.
  await new Promise((done) => setTimeout(done));
  wire();
  list.start();
  table.start();
  charts.start();
  if (state.e < 0) return;
  await Promise.all([opened, flags.load(), episodes.load(state.s), opened.then(annotations.load)]).catch((e) => problem(e.message));
  if (shown.first) title();
}

addEventListener('hashchange', () => location.reload());
start();
