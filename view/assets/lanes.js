// Lanes show when each clock has samples, texts and events, and findings.
import { $, css, get, icon, make, paint } from './api.js';
import { after, gaps } from './episode.js';
import { listing } from './episodes.js';
import { bounds, each, kind, span } from './panels.js';
import { index, on, shown, state, tell } from './state.js';

// lane creates a line on the time axis. draw(g, x, w, h, a, b) paints it; x maps a time to a
// position. A click moves to a time.
function lane(label, draw, more = {}) {
  const canvas = make('canvas', {
    role: 'img',
    ariaLabel: label,
    onclick: (ev) => {
      const [a, b] = span();
      tell('seek', a + ((b - a) * ev.offsetX) / canvas.clientWidth);
    }
  });
  const again = () => {
    const { g, w, h } = paint(canvas),
      [a, b] = span();
    draw(g, (t) => ((t - a) / (b - a)) * w, w, h, a, b);
  };
  return {
    paint: again,
    zoom: again,
    element: make(
      'div',
      { className: 'lane' },
      make('span', { title: label }, label),
      make('div', { className: 'track' }, canvas, make('div', { className: 'at' }))
    ),
    ...more
  };
}

// clock draws samples as ticks, or as filled columns if there are many. Gaps are drawn as open
// rectangles.
function clock(ep, list, label) {
  const st = list[0],
    t = st.times,
    s = (st.last_ns - st.first_ns) / 1e9,
    holes = gaps(ep, st);
  const text =
    (label && label + ' ') +
    (s > 0 && t.length > 1 && !st.timeless ? `${((t.length - 1) / s).toFixed(1)} Hz · ` : '') +
    (holes.length ? `${holes.length} gap${holes.length > 1 ? 's' : ''} · ` : '') +
    `${t.length} rows · ${list.map((x) => x.key).join(', ')}`;
  return lane(text, (g, x, w, h, a, b) => {
    const lo = Math.max(0, after(t, a) - 1),
      hi = Math.min(t.length, after(t, b) + 1);
    g.fillStyle = css('--accent');
    if (hi - lo < w / 2) for (let i = lo; i < hi; i++) g.fillRect(x(t[i]) - 0.5, 3, 1.5, h - 6);
    else if (t.length) g.fillRect(x(t[lo]), 4, x(t[hi - 1]) - x(t[lo]), h - 8);
    g.strokeStyle = css('--mark');
    for (const [from, to] of holes.filter(([p, q]) => q >= a && p <= b)) {
      g.clearRect(x(from), 0, Math.max(1.5, x(to) - x(from)), h);
      g.strokeRect(x(from) + 0.5, 2.5, Math.max(1.5, x(to) - x(from)) - 1, h - 5);
    }
  });
}

kind('lanes', (ep, label) => {
  const clocks = new Map();
  for (const st of ep.streams.values())
    if (st.rows > 0 && !st.feature.default && !st.feature.mask && !st.feature.latched)
      clocks.set(st.clock, [...(clocks.get(st.clock) || []), st]);
  return [...clocks.values()].map((list) => clock(ep, list, label));
});

// words shows texts and events as marks, and the current text below.
function words(ep, key) {
  const now = make('div', { className: 'text' });
  let rows = [];
  const l = lane(
    key,
    (g, x, w, h) => {
      g.fillStyle = css('--accent');
      for (const r of rows) g.fillRect(x(r.t_ns) - 1, 2, 2, h - 4);
    },
    {
      time(t) {
        const at =
            rows.findLast((r) => r.t_ns <= t) ||
            (ep.streams.get(key)?.feature.latched ? rows[0] : null),
          text = at ? at.text : '';
        if (now.textContent !== text) now.textContent = text;
      }
    }
  );
  const element = make('div', { hidden: true }, l.element, now);
  get(ep.path('text', key)).then(
    (a) => {
      // A single task is already shown in the title.
      if (key === 'task' && a.rows.length < 2) return;
      rows = a.rows.map((r) => ({ ...r, t_ns: r.t_ns + ep.shift }));
      if (a.rows_read < (ep.streams.get(key)?.rows ?? ep.length))
        element.append(make('small', {}, `of the first ${a.rows_read} rows alone`));
      element.hidden = false;
      l.paint();
      l.time(state.t);
    },
    () => {}
  );
  return { ...l, element };
}

kind('texts', (ep, label) =>
  label
    ? []
    : [
        'task',
        ...[...ep.streams.values()]
          .filter(
            (st) =>
              (st.kind === 'text' || st.kind === 'event') &&
              st.rows > 0 &&
              !state.hidden.has(st.key)
          )
          .map((st) => st.key)
      ].map((key) => words(ep, key))
);

// marks draws the findings and the zoomed time range above the slider.
function marks() {
  const [from, to] = bounds(),
    place = (t) => `${((t - from) / (to - from)) * 100}%`;
  $('marks').replaceChildren(
    ...shown.findings
      .filter((f) => f.t_ns != null)
      .slice(0, 300)
      .map((f) => {
        const b = make(
          'button',
          {
            className: f.severity,
            title: `${f.severity} ${f.code}: ${f.message}`,
            ariaLabel: `${f.severity} ${f.code} at ${shown.first.seconds(f.t_ns)}`,
            onclick: () => tell('seek', f.t_ns)
          },
          icon('finding')
        );
        b.style.left = place(f.t_ns);
        return b;
      })
  );
  const bands = [...(listing()?.ranges?.get(state.e) || []).map((r) => [r, 'band found'])];
  for (const f of shown.findings)
    if (f.end_ns > f.t_ns) bands.push([[f.t_ns, f.end_ns], `band ${f.severity}`]);
  if (state.zoom) bands.push([state.zoom, 'band']);
  for (const [[a, b], className] of bands) {
    const band = make('div', { className });
    [band.style.left, band.style.width] = [
      place(a),
      `max(3px, ${((b - a) / (to - from)) * 100}%)`
    ];
    $('marks').prepend(band);
  }
}
on('zoom', marks);
on('found', () => shown.first && marks());

// sentence describes a finding: severity, code, stream, message and hint.
const sentence = (f) =>
  `${f.severity} ${f.code}${f.where?.stream ? ' (' + f.where.stream + ')' : ''}` +
  `${f.where?.evidence === 'inferred' ? ' (inferred)' : ''}: ` +
  `${f.message}${f.hint ? ' – ' + f.hint : ''}`;

export async function showFindings() {
  const ep = shown.first,
    title = (text) => {
      $('findings-title').textContent = text;
    };
  shown.findings = [];
  $('findings').replaceChildren();
  marks();
  title('Findings: the doctor looks …');
  let list;
  try {
    list = await get(`e/${index(ep.s, ep.e)}/findings?s=${ep.s}`);
  } catch (e) {
    title('Findings: ' + e.message);
    return;
  }
  if (ep !== shown.first) return;
  const rank = { error: 0, warning: 1, info: 2 };
  list.sort((a, b) => (b.episode >= 0) - (a.episode >= 0) || rank[a.severity] - rank[b.severity]);
  shown.findings = list;
  const own = list.filter((f) => f.episode >= 0).length;
  title(`Findings: ${own} of this episode, ${list.length - own} of the dataset`);
  $('findings-box').open ||= list.some((f) => f.episode >= 0 && f.severity !== 'info');
  $('findings').replaceChildren(
    ...list.map((f) =>
      make(
        'li',
        { className: f.severity, id: 'finding-' + list.indexOf(f) },
        f.t_ns != null ? make('button', { onclick: () => tell('seek', f.t_ns) }, 'go') : null,
        ' ' + sentence(f)
      )
    )
  );
  marks();
}

// A closed lane has no width, so it is drawn when it opens.
$('lanes-box').addEventListener('toggle', () => each('zoom'));
