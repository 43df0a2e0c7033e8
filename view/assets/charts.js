// Charts next to the table: the distribution of a column for each task, and a histogram of states.
import { $, columns, css, make, paint } from './api.js';
import { column, filter, listing, order } from './episodes.js';
import { on, shown, state, tell } from './state.js';

const most = 12;

// groups returns the values of a column by task, the largest tasks first.
function groups(c) {
  const l = listing(),
    out = new Map();
  for (const e of order) {
    const v = c.values[e];
    if (v !== v) continue;
    if (!out.has(l.task[e])) out.set(l.task[e], []);
    out.get(l.task[e]).push(v);
  }
  return [...out].sort((a, b) => b[1].length - a[1].length);
}

// distributions draws a box for each task: 5 to 95 %, the middle half and the median.
function distributions() {
  if (!state.table || !listing()) return;
  const c = column(state.by),
    all = c?.values ? groups(c) : [];
  $('tasks-title').textContent = `${c?.label ?? ''} by task`;
  $('tasks').replaceChildren(
    ...all.slice(0, most).map(([t, list]) => {
      const v = Float64Array.from(list).sort(),
        at = (q) => v[Math.round(q * (v.length - 1))],
        place = (q) => `${(100 * c.share(at(q))).toFixed(2)}%`,
        name = listing().tasks[t] ?? 'no task',
        part = (className, a, b) => {
          const x = make('i', { className });
          x.style.left = place(a);
          x.style.right = `calc(100% - ${place(b)})`;
          return x;
        };
      return make(
        'button',
        {
          title: `${name}\n${v.length} episodes\nmedian ${c.text(at(0.5))}, middle half ${c.text(at(0.25))} to ${c.text(at(0.75))}, 5 to 95 % ${c.text(at(0.05))} to ${c.text(at(0.95))}`,
          onclick: () => {
            state.q = $('filter').value = state.q ? '' : name;
            filter();
            tell('filter');
          }
        },
        make('span', {}, name),
        make('small', {}, String(v.length)),
        make('div', { className: 'box' }, part('wide', 0.05, 0.95), part('half', 0.25, 0.75), part('mid', 0.5, 0.5))
      );
    }),
    ...(all.length > most ? [make('small', { className: 'soft' }, `and ${all.length - most} more tasks`)] : [])
  );
}

// coverage draws a two-dimensional histogram of the states.
let asked = '';
async function coverage() {
  if (!state.table || !$('coverage-box').open || !listing()) return;
  const path = `coverage?s=${state.s}&key=${encodeURIComponent($('coverage-key').value)}&x=${$('coverage-x').value}&y=${$('coverage-y').value}`;
  if (path === asked) return;
  asked = path;
  const note = $('coverage-note');
  note.textContent = 'reading …';
  let a;
  try {
    a = await columns(path);
  } catch (e) {
    note.textContent = e.full ?? e.message;
    return;
  }
  if (path !== asked) return;
  const { header: h, columns: list } = a,
    counts = list[0],
    { g, w, h: tall } = paint($('coverage')),
    n = h.bins,
    top = Math.log1p(Math.max(...counts));
  g.fillStyle = css('--accent');
  for (let y = 0; y < n; y++)
    for (let x = 0; x < n; x++) {
      const v = counts[y * n + x];
      if (!v) continue;
      g.globalAlpha = 0.15 + (0.85 * Math.log1p(v)) / top;
      g.fillRect((x * w) / n, tall - ((y + 1) * tall) / n, w / n + 0.3, tall / n + 0.3);
    }
  g.globalAlpha = 1;
  const axis = (k) =>
    `${h.labels[k]} ${Number(h.low[k].toPrecision(3))} to ${Number(h.high[k].toPrecision(3))}`;
  note.textContent = `→ ${axis(0)}\n↑ ${axis(1)}\n${h.rows} rows of ${h.episodes} episodes${h.explained ? `; the two components explain ${Math.round(100 * h.explained)} %` : ''}`;
  $('coverage').ariaLabel = note.textContent;
}

// channels fills the choices of the axes.
function channels() {
  const streams = shown.info.datasets[state.s].features.filter(
      (f) => f.kind === 'numeric' && f.channel_names && !f.default && f.channel_names.length <= 256
    ),
    key = $('coverage-key'),
    option = (value, text) => make('option', { value }, text);
  if (!key.children.length) {
    key.replaceChildren(...streams.map((f) => option(f.key, f.key)));
    const first =
      streams.find((f) => f.key === 'observation.state') ||
      streams.find((f) => /(state|position|qpos|action)$/.test(f.key)) ||
      streams[0];
    key.value = first?.key ?? '';
  }
  const f = streams.find((x) => x.key === key.value);
  $('coverage-box').hidden = !f;
  for (const id of ['coverage-x', 'coverage-y'])
    $(id).replaceChildren(
      option(-1, id.endsWith('x') ? 'first component' : 'second component'),
      ...(f?.channel_names || []).map((name, i) => option(i, name))
    );
}

export function start() {
  channels();
  const set = shown.info.datasets[state.s];
  $('coverage-box').open = set.num_frames <= 5e5 && !/^[a-z0-9]+:[/][/]/.test(set.uri);
  $('coverage-box').addEventListener('toggle', coverage);
  $('coverage-key').onchange = () => {
    channels();
    coverage();
  };
  $('coverage-x').onchange = $('coverage-y').onchange = coverage;
  distributions();
  coverage();
}

on('order', distributions);
on('table', () => {
  distributions();
  coverage();
});
on('theme', () => {
  asked = '';
  coverage();
});
