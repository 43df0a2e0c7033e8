// The Dataset panel summarizes a dataset, or two side by side.
import { $, get, make } from './api.js';
import { findingsOf, listing } from './episodes.js';
import { shown } from './state.js';

const whole = (n) => n.toLocaleString('en');

// duration returns a time in the unit that fits it.
export function duration(s) {
  if (s >= 7200) return `${(s / 3600).toFixed(s < 36e4 ? 1 : 0)} h`;
  return s >= 120 ? `${(s / 60).toFixed(1)} min` : `${Number(s.toPrecision(3))} s`;
}

function size(bytes) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'],
    k = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  return `${Number((bytes / 1000 ** k).toPrecision(3))} ${units[k]}`;
}

const hz = (x) => (x ? `${Number(x.toPrecision(4))} Hz` : '');

// severities counts findings: "2 errors, 1 warning".
function severities(found) {
  const n = { error: 0, warning: 0, info: 0 };
  for (const f of found) n[f.severity]++;
  const text = Object.entries(n)
    .filter(([, k]) => k)
    .map(([name, k]) => `${whole(k)} ${name}${k > 1 && name !== 'info' ? 's' : ''}`);
  return text.join(', ') || 'none';
}

// facts returns the lines of the panel, in order. A line without a value is absent.
function facts(set, report, list) {
  const cameras = report.streams.filter((st) => st.kind === 'video' || st.kind === 'image'),
    rates = new Map(),
    n = report.episode_length;
  for (const st of report.streams)
    if (!st.default && st.rate_hz)
      rates.set(hz(st.rate_hz), [...(rates.get(hz(st.rate_hz)) || []), st.key]);
  const per = report.num_frames ? report.duration_s / report.num_frames : 0,
    span = (k) => (per ? duration(k * per) : `${whole(Math.round(k))} rows`);
  return [
    ['Episodes', whole(report.num_episodes)],
    ['Duration', report.duration_s ? duration(report.duration_s) : ''],
    [
      'Per episode',
      report.num_episodes ? `${span(n.mean)} on average, ${span(n.min)} to ${span(n.max)}` : ''
    ],
    ['Rows', whole(report.num_frames)],
    ['Tasks', list?.tasks.length ? whole(list.tasks.length) : ''],
    [
      'Rates',
      rates.size > 3
        ? [...rates.keys()].join(', ')
        : [...rates].map(([r, keys]) => (rates.size > 1 ? `${r} (${whole(keys.length)})` : r)).join(', ')
    ],
    [
      'Cameras',
      cameras
        .map((c) =>
          [c.key, c.width ? `${c.width} × ${c.height}` : '', c.codec, hz(c.rate_hz)]
            .filter(Boolean)
            .join(' · ')
        )
        .join('\n')
    ],
    ['Robot', report.robot_type],
    [
      'Splits',
      Object.entries(report.split_episodes || {})
        .map(([name, k]) => `${name} ${whole(k)}`)
        .join(', ')
    ],
    [
      'Size',
      report.bytes
        ? `${size(report.bytes.total)} in ${whole(report.bytes.files)} file${report.bytes.files > 1 ? 's' : ''}`
        : ''
    ],
    ['Format', `${set.format} ${set.version}`],
    [
      'Findings',
      { no: 'the doctor has not run', running: 'the doctor looks …' }[list?.doctor] ||
        severities(list ? findingsOf(list) : [])
    ]
  ];
}

// table returns rows of cells. Rows whose cells differ are marked.
const table = (rows) =>
  make(
    'table',
    {},
    ...rows.map(([name, ...cells]) =>
      make(
        'tr',
        { className: new Set(cells).size > 1 ? 'differs' : '' },
        make('th', { scope: 'row' }, name),
        ...cells.map((c) => make('td', {}, c || '–'))
      )
    )
  );

const fold = (title, open, ...content) =>
  make('details', { open }, make('summary', {}, title), ...content);

// tasks lists the tasks of a dataset, the most frequent first.
function tasks(list) {
  const n = new Map();
  for (const t of list.task) n.set(t, (n.get(t) || 0) + 1);
  n.delete(-1);
  const all = [...n].sort((a, b) => b[1] - a[1]),
    most = 50;
  return fold(
    `${whole(all.length)} task${all.length > 1 ? 's' : ''}`,
    all.length < 6,
    table([
      ...all.slice(0, most).map(([t, k]) => [whole(k), list.tasks[t]]),
      ...(all.length > most ? [['', `and ${whole(all.length - most)} more`]] : [])
    ])
  );
}

// findings groups the findings of a dataset by code.
function findings(list) {
  const rank = { error: 0, warning: 1, info: 2 },
    groups = new Map();
  for (const f of findingsOf(list)) {
    const g = groups.get(f.severity + ' ' + f.code) || { ...f, n: 0 };
    g.n++;
    groups.set(f.severity + ' ' + f.code, g);
  }
  const all = [...groups.values()].sort((a, b) => rank[a.severity] - rank[b.severity] || b.n - a.n);
  return fold(
    'Findings',
    all.some((g) => g.severity === 'error'),
    table(all.map((g) => [`${g.severity} ${g.code}`, `${g.n > 1 ? `${whole(g.n)} times: ` : ''}${g.message}`]))
  );
}

// streams compares the features of the datasets.
function streams(sets) {
  const says = (f) =>
    f
      ? [f.kind, f.dtype, (f.shape || []).join(' × '), f.unit, f.codec].filter(Boolean).join(' · ')
      : 'absent';
  const all = [...new Set(sets.flatMap((x) => x.features.map((f) => f.key)))];
  return fold(
    `${whole(all.length)} streams`,
    sets.length > 1,
    table(all.map((k) => [k, ...sets.map((x) => says(x.features.find((f) => f.key === k)))]))
  );
}

// showDataset opens the panel. The parts that need files to be read follow.
export async function showDataset() {
  const sets = shown.info.datasets,
    panel = $('about'),
    close = make('form', { method: 'dialog' }, make('button', {}, 'close')),
    body = make('div', {}, make('p', { className: 'soft' }, 'reading …'));
  panel.replaceChildren(make('h2', {}, 'Dataset'), body, close);
  if (!panel.open) panel.showModal();
  let reports;
  try {
    reports = await Promise.all(sets.map((_, s) => get(`dataset?s=${s}`)));
  } catch (e) {
    body.replaceChildren(make('p', { className: 'error' }, e.message));
    return;
  }
  const lines = sets.map((set, s) => facts(set, reports[s], listing(s)));
  const rows = lines[0]
    .map(([name], i) => [name, ...lines.map((l) => l[i][1])])
    .filter(([, ...cells]) => cells.some(Boolean));
  const parts = sets.flatMap((_, s) => {
    const list = listing(s);
    return list
      ? [
          ...(sets.length > 1 ? [make('h3', {}, sets[s].uri)] : []),
          ...(list.tasks.length ? [tasks(list)] : []),
          ...(findingsOf(list).length ? [findings(list)] : [])
        ]
      : [];
  });
  body.replaceChildren(
    table([['', ...sets.map((x) => x.uri)], ...rows]),
    ...parts,
    streams(sets)
  );
  body.firstChild.className = 'facts';
}
