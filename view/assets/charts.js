// Charts next to the table: the distribution of a column for each task, and a histogram of states.
import { $, columns, css, make, paint } from './api.js';
import { column, filter, listing, place } from './episodes.js';
import { on, shown, state, tell } from './state.js';

const most = 12;

// groups returns the sorted values of a column for the tasks with most episodes that pass the
// filters, and the number of tasks.
function groups(c) {
  const l = listing(),
    counts = new Uint32Array(l.tasks.length + 1), // the last is that of no task
    slot = (e) => (l.task[e] < 0 ? l.tasks.length : l.task[e]),
    { order: sorted, known } = c.ranking();
  for (let k = 0; k < known; k++) if (place[sorted[k]] >= 0) counts[slot(sorted[k])]++;
  const used = [...counts.keys()].filter((t) => counts[t]).sort((a, b) => counts[b] - counts[a]),
    values = used.slice(0, most).map((t) => new Float64Array(counts[t])),
    at = new Int32Array(counts.length).fill(-1),
    filled = new Uint32Array(most);
  values.forEach((_, i) => (at[used[i]] = i));
  for (let k = 0; k < known; k++) {
    const e = sorted[k],
      i = place[e] >= 0 ? at[slot(e)] : -1;
    if (i >= 0) values[i][filled[i]++] = c.values[e];
  }
  return { list: values.map((v, i) => [used[i], v]), n: used.length };
}

// distributions draws a box for each task: 5 to 95 %, the middle half and the median.
function distributions() {
  if (!state.table || !listing()) return;
  const c = column(state.by),
    { list, n } = c?.values ? groups(c) : { list: [], n: 0 };
  $('tasks-title').textContent = `${c?.label ?? ''} by task`;
  $('tasks').replaceChildren(
    ...list.map(([t, v]) => {
      const at = (q) => v[Math.round(q * (v.length - 1))],
        left = (q) => `${(100 * c.share(at(q))).toFixed(2)}%`,
        name = listing().tasks[t] ?? 'no task',
        part = (className, a, b) => {
          const x = make('i', { className });
          x.style.left = left(a);
          x.style.right = `calc(100% - ${left(b)})`;
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
    ...(n > most ? [make('small', { className: 'soft' }, `and ${n - most} more tasks`)] : [])
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
