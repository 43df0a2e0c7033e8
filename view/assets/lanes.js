// Lanes: when each clock has samples; texts and events; findings.
import { $, css, get, make, paint } from './api.js';
import { after } from './episode.js';
import { gaps } from './plots.js';
import { on, shown, state, tell } from './state.js';

let lanes = [], texts = [];
const span = () => state.zoom || [0, Math.max(shown.first.duration, 1)];

// lane draws samples as ticks, or as filled columns where they are many; where a gap is, the line is open.
function lane(ep, st, label) {
  const canvas = make('canvas', { role: 'img', ariaLabel: label, onclick: (ev) => { const [a, b] = span(); tell('seek', a + (b - a) * ev.offsetX / canvas.clientWidth); } });
  const draw = () => {
    const { g, w, h } = paint(canvas), [a, b] = span(), x = (t) => (t - a) / (b - a) * w, t = st.times;
    const lo = Math.max(0, after(t, a) - 1), hi = Math.min(t.length, after(t, b) + 1);
    g.fillStyle = css('--accent');
    if (hi - lo < w / 2) for (let i = lo; i < hi; i++) g.fillRect(x(t[i]) - 0.5, 3, 1.5, h - 6);
    else if (t.length) {
      g.fillRect(x(t[lo]), 4, x(t[hi - 1]) - x(t[lo]), h - 8);
    }
    for (const [from, to] of gaps(ep, st)) {
      if (to < a || from > b) continue;
      g.clearRect(x(from), 0, Math.max(1.5, x(to) - x(from)), h);
      g.strokeStyle = css('--mark');
      g.strokeRect(x(from) + 0.5, 2.5, Math.max(1.5, x(to) - x(from)) - 1, h - 5);
    }
    g.fillStyle = css('--mark');
    g.fillRect(x(state.t) - 1, 0, 2, h);
  };
  return { draw, element: make('div', { className: 'lane' }, make('span', { title: label }, label), canvas) };
}

export function showLanes(box) {
  lanes = [];
  for (const ep of [shown.first, shown.second, shown.aligned]) {
    const clocks = new Map();
    for (const st of ep?.streams.values() || []) {
      if (st.rows > 0 && !st.feature.default && !st.feature.mask) clocks.set(st.clock, [...(clocks.get(st.clock) || []), st]);
    }
    for (const list of clocks.values()) {
      const st = list[0], n = st.times.length, s = (st.last_ns - st.first_ns) / 1e9;
      const holes = gaps(ep, st).length;
      const what = (ep === shown.first ? '' : ep.hz ? ep.hz + ' Hz grid: ' : '2nd: ') + (s > 0 && n > 1 && !st.timeless ? `${((n - 1) / s).toFixed(1)} Hz · ` : '')
        + (holes ? `${holes} gap${holes > 1 ? 's' : ''} · ` : '') + `${n} rows · ${list.map((x) => x.key).join(', ')}`;
      lanes.push(lane(ep, st, what));
    }
  }
  box.replaceChildren(...lanes.map((l) => l.element));
  for (const l of lanes) l.draw();
  marks();
}

// showTexts lists texts and events: marks to click, and the one that holds.
export async function showTexts(box) {
  const ep = shown.first;
  texts = [];
  box.replaceChildren();
  const streams = [...ep.streams.values()].filter((st) => (st.kind === 'text' || st.kind === 'event') && st.rows > 0 && !state.hidden.has(st.key));
  for (const key of ['task', ...streams.map((st) => st.key)]) {
    let rows;
    try { rows = (await get(ep.path('text', key))).rows; } catch { continue; }
    if (ep !== shown.first) return;
    if (key === 'task' && rows.length < 2) continue; // it stands in the title
    const now = make('div', { className: 'text' }), canvas = make('canvas', { role: 'img', ariaLabel: `${key}: ${rows.length} texts`, onclick: (ev) => { const [a, b] = span(); tell('seek', a + (b - a) * ev.offsetX / canvas.clientWidth); } });
    const draw = () => {
      const { g, w, h } = paint(canvas), [a, b] = span();
      g.fillStyle = css('--accent');
      for (const r of rows) g.fillRect((r.t_ns - a) / (b - a) * w - 1, 2, 2, h - 4);
      g.fillStyle = css('--mark');
      g.fillRect((state.t - a) / (b - a) * w - 1, 0, 2, h);
      const at = rows.filter((r) => r.t_ns <= state.t).pop() || (ep.streams.get(key)?.feature.latched ? rows[0] : null);
      const text = at ? at.text : '';
      if (now.textContent !== text) now.textContent = text;
    };
    texts.push({ draw });
    box.append(make('div', { className: 'lane' }, make('span', { title: key }, key), canvas), now);
    draw();
  }
}

// marks draws findings, gaps and the zoomed time above the slider.
function marks() {
  const { g, w, h } = paint($('marks')), d = Math.max(shown.first?.duration || 1, 1);
  if (state.zoom) { g.fillStyle = css('--gap'); g.fillRect(state.zoom[0] / d * w, 0, (state.zoom[1] - state.zoom[0]) / d * w, h); }
  g.fillStyle = css('--bad');
  for (const f of shown.findings) {
    if (f.t_ns == null) continue;
    const x = f.t_ns / d * w;
    g.beginPath(); g.moveTo(x - 4, 0); g.lineTo(x + 4, 0); g.lineTo(x, h); g.fill();
  }
}

export async function showFindings() {
  const ep = shown.first;
  shown.findings = [];
  $('findings').replaceChildren();
  $('findings-title').textContent = 'Findings: the doctor looks …';
  let list;
  try { list = await get(`e/${ep.e}/findings?s=${ep.s}`); } catch (e) { $('findings-title').textContent = 'Findings: ' + e.message; return; }
  if (ep !== shown.first) return;
  const rank = { error: 0, warning: 1, info: 2 };
  list.sort((a, b) => (b.episode >= 0) - (a.episode >= 0) || rank[a.severity] - rank[b.severity]);
  shown.findings = list;
  const own = list.filter((f) => f.episode >= 0).length;
  $('findings-title').textContent = `Findings: ${own} of this episode, ${list.length - own} of the dataset`;
  $('findings-box').open ||= own > 0;
  $('findings').replaceChildren(...list.map((f) => make('li', { className: f.severity }, f.t_ns != null ? make('button', { onclick: () => tell('seek', f.t_ns) }, 'go') : null,
    ` ${f.severity} ${f.code}${f.where?.stream ? ' (' + f.where.stream + ')' : ''}: ${f.message}${f.hint ? ' – ' + f.hint : ''}`)));
  marks();
}

const draw = () => { for (const l of [...lanes, ...texts]) l.draw(); };
on('t', draw);
on('zoom', () => { draw(); marks(); });
on('theme', () => { draw(); marks(); });
addEventListener('resize', () => { draw(); marks(); });
