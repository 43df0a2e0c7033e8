// Plots show every numeric stream on one time axis, at its own samples. Gaps are empty and shaded.
// A plot also shows the rows of an alignment and a second episode. The plot of the state also shows
// the action.
import { $, columns, css, get, make, newest } from './api.js';
import { gaps } from './episode.js';
import { bounds, kind, span } from './panels.js';
import { index, on, shown, state, tell } from './state.js';

let values = new Map();
// The plot library is loaded after the first frames, because parsing it takes as long as drawing
// them.
let library = null;
const drawing = () =>
  (library ||= new Promise((onload, onerror) =>
    document.head.append(
      make('script', { src: new URL('uPlot.iife.min.js', import.meta.url).href, onload, onerror })
    )
  ));
const dashes = [[], [8, 4], [2, 3], [8, 3, 2, 3]];
const hues = (i) => `hsl(${(215 + i * 137.508) % 360} 70% ${css('--light') || '40%'})`;
const number = (v) =>
  v == null || !Number.isFinite(v)
    ? '–'
    : Number.isInteger(v) && Math.abs(v) < 1e15
      ? String(v)
      : String(Number(v.toPrecision(5)));

class Plot {
  constructor(key) {
    this.key = key;
    this.from = 0;
    const st = shown.first.streams.get(key) || shown.second?.streams.get(key),
      f = st.feature;
    const size = (x) => (x.shape || []).reduce((a, b) => a * b, 1),
      action = shown.first.streams.get('action');
    Object.assign(this, {
      st,
      f,
      layers: [],
      of: size(f),
      over:
        key === 'observation.state' && action && size(action.feature) === size(f) ? 'action' : ''
    });
    this.title = make('small');
    this.pager = make('select', {
      ariaLabel: 'channels',
      hidden: this.of <= 64,
      onchange: () => {
        this.from = Number(this.pager.value);
        this.load();
      }
    });
    for (let c = 0; c < this.of && this.of > 64; c += 64)
      this.pager.append(
        make('option', { value: c }, `channels ${c} to ${Math.min(c + 63, this.of - 1)}`)
      );
    this.canvas = make('div', { className: 'canvas' });
    this.legend = make('div', {
      className: 'legend',
      role: 'group',
      ariaLabel: 'channels of ' + key
    });
    this.element = make(
      'section',
      { className: 'plot', ariaLabel: key },
      make(
        'div',
        { className: 'head' },
        make('h3', {}, key),
        this.title,
        this.pager,
        make(
          'button',
          {
            title: 'show this stream no more',
            ariaLabel: 'hide ' + key,
            onclick: () => {
              state.hidden.add(key);
              tell('streams');
            }
          },
          '×'
        )
      ),
      make('div', { className: 'body' }, this.canvas, this.legend)
    );
    this.element.dataset.key = key;
    this.load = newest(() => this.fetch());
    this.watch = new IntersectionObserver(
      ([x]) => {
        this.seen = x.isIntersecting;
        if (this.seen && this.stale) this.load();
      },
      { rootMargin: '200px' }
    );
    this.watch.observe(this.element);
    this.stale = true;
  }

  zoom() {
    this.stale = true;
    if (this.seen) this.load();
  }

  paint() {
    if (this.u) this.build();
  }

  async fetch() {
    this.stale = false;
    const [from, to] = span().map(Math.round),
      px = Math.max(200, Math.round((this.canvas.clientWidth - 60) / (this.of > 8 ? 2 : 1))),
      layers = [];
    this.asked = `${from},${to}`;
    const want = [
      [shown.first, 'own'],
      [shown.second, 'second'],
      [shown.aligned, 'grid']
    ].map(([ep, how]) => [ep, how, this.key]);
    if (this.over) want.splice(1, 0, [shown.first, 'action', this.over]);
    try {
      for (const [ep, how, key] of want.filter(([ep, , key]) => ep?.streams.get(key)?.rows > 0)) {
        const ask = (key, ch) =>
          columns(
            ep.path(
              'series',
              key,
              `&from=${Math.round(from - ep.shift)}&to=${Math.round(to - ep.shift)}&px=${px}&ch=${ch}`
            )
          );
        const { header, columns: c } = await ask(key, this.from);
        const layer = {
          ep,
          how,
          header,
          x: (c[0] || new Float64Array()).map((v) => v + ep.shift),
          y: c.slice(1)
        };
        if (how === 'grid' && ep.streams.get(key + '.valid')?.rows) {
          const mask = await ask(key + '.valid', 0);
          layer.valid = { x: mask.columns[0], y: mask.columns[1] };
        }
        layers.push(layer);
      }
    } catch (e) {
      this.title.textContent = e.message;
      return;
    }
    await drawing();
    if (this.gone) return;
    this.layers = layers;
    this.build();
  }

  build() {
    const own = this.layers[0];
    if (!own) {
      this.title.textContent = this.st.problem || 'no rows in this episode';
      return;
    }
    const { f, header: h = own.header } = this;
    const names = (f.channel_names || []).slice(
      own.header.from,
      own.header.from + own.header.channels
    );
    this.title.textContent =
      `${f.dtype} ${JSON.stringify(f.shape)}${f.unit ? ' in ' + f.unit : ''} · ${this.st.rows} rows` +
      (own.header.thinned ? ' · thinned: lowest and highest of each pixel' : '') +
      (own.header.missing ? ` · ${own.header.missing} values missing` : '') +
      (h.of > 64 ? ` · ${h.of} channels` : '') +
      (this.over ? ' · dashed: action' : '') +
      (this.st.problem ? ' · ' + this.st.problem : '');
    const plain = (a) => Array.from(a, (v) => (Number.isFinite(v) ? v : null));
    const tables = [],
      series = [{}];
    this.channel = [null];
    // Dashes and wide lines are slow to draw with many points.
    const few = own.header.channels <= 8,
      stepped = !/float/.test(f.dtype),
      off = state.channels[this.key] || new Set(),
      thin = own.x.length > 500;
    for (const l of this.layers) {
      tables.push([l.x.map((v) => v / 1e9), ...l.y.map(plain)]);
      const grid = l.how === 'grid',
        dash = { second: [3, 5], action: [5, 3] }[l.how];
      l.y.forEach((_, c) => {
        const n = own.header.from + c,
          stroke = hues(n);
        this.channel.push({ n, layer: l });
        series.push({
          label: names[c] ?? String(n),
          stroke,
          show: !off.has(n),
          width: grid ? 0 : thin || dash ? 1 : 1.5,
          dash: dash && own.x.length < 2000 ? dash : few || thin ? [] : dashes[n % 4],
          paths: grid ? () => null : stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
          points: grid
            ? { show: true, size: 5, width: 1, stroke, fill: css('--back') }
            : { show: l.how === 'own' && ((u) => u.data[0].length < 120), size: 3, fill: stroke }
        });
      });
    }
    const data =
      tables.length > 1
        ? uPlot.join(
            tables,
            tables.map((t) => t.map(() => 1))
          )
        : tables[0];
    const scale = span().map((v) => v / 1e9),
      ink = css('--soft'),
      line = { stroke: css('--line'), width: 1 };
    const options = {
      width: Math.max(200, this.canvas.clientWidth),
      height: 170,
      legend: { show: false },
      scales: { x: { time: false, auto: false, min: scale[0], max: scale[1] } },
      axes: [
        { stroke: ink, grid: line, ticks: line, size: 28, font: '11px system-ui' },
        { stroke: ink, grid: line, ticks: line, size: 58, font: '11px system-ui' }
      ],
      cursor: {
        sync: { key: 'time' },
        drag: { x: true, y: false, setScale: false, dist: 5 },
        points: { size: 6 },
        focus: { prox: -1 }
      },
      focus: { alpha: 0.25 },
      series,
      hooks: {
        drawClear: [(u) => this.shade(u)],
        setSelect: [(u) => this.select(u)],
        setCursor: [(u) => this.hover(u)]
      }
    };
    const shape = JSON.stringify([
      this.layers.map((l) => l.how),
      names,
      own.header.from,
      options.width,
      document.documentElement.dataset.theme
    ]);
    if (this.u && this.shape === shape) {
      // the same curves for another time range
      this.u.series.forEach((x, i) => {
        if (i) [x.dash, x.width] = [series[i].dash, series[i].width];
      });
      this.u.batch(() => {
        this.u.setData(data, false);
        this.u.setScale('x', { min: scale[0], max: scale[1] });
      });
      Object.assign(this.element.dataset, { points: data[0].length, span: this.asked });
      return;
    }
    this.shape = shape;
    this.u?.destroy();
    this.u = new uPlot(options, data, this.canvas);
    this.u.over.append(make('div', { className: 'at' }));
    this.u.over.addEventListener('click', (ev) => {
      if (!this.dragged) tell('seek', this.u.posToVal(ev.offsetX, 'x') * 1e9);
      this.dragged = false;
    });
    this.u.over.addEventListener('dblclick', () => {
      state.zoom = null;
      tell('zoom');
    });
    this.u.over.addEventListener(
      'wheel',
      (ev) => {
        if (!ev.ctrlKey && !ev.shiftKey) return;
        ev.preventDefault();
        const [a, b] = span(),
          at = this.u.posToVal(ev.offsetX, 'x') * 1e9,
          k = (ev.deltaY || ev.deltaX) > 0 ? 1.25 : 0.8;
        const [least, most] = bounds();
        state.zoom = [Math.max(least, at - (at - a) * k), Math.min(most, at + (b - at) * k)];
        tell('zoom');
      },
      { passive: false }
    );
    this.list(names);
    Object.assign(this.element.dataset, { points: data[0].length, span: this.asked });
  }

  // shade marks the times without samples, and those at which the alignment has no value.
  shade(u) {
    const { ctx } = u,
      { left, top, width, height } = u.bbox,
      r = devicePixelRatio || 1;
    const mark = (a, b, y, h, style) => {
      const x0 = Math.max(left, u.valToPos(a / 1e9, 'x', true)),
        x1 = Math.min(left + width, u.valToPos(b / 1e9, 'x', true));
      if (x1 <= x0) return;
      ctx.fillStyle = style;
      ctx.fillRect(x0, y, Math.max(1, x1 - x0), h);
    };
    ctx.save();
    const st = this.layers[0].ep.streams.get(this.key);
    for (const [a, b] of gaps(this.layers[0].ep, st)) mark(a, b, top, height, css('--gap'));
    for (const l of this.layers) {
      for (let i = 0; l.valid && i < l.valid.x.length; i++)
        if (l.valid.y[i] === 0)
          mark(
            l.valid.x[i] - 2e6,
            (l.valid.x[i + 1] ?? l.valid.x[i] + 1e7) - 2e6,
            top,
            6 * r,
            css('--bad')
          );
    }
    ctx.restore();
  }

  select(u) {
    const { left, width } = u.select;
    if (width < 5) return;
    this.dragged = true;
    state.zoom = [u.posToVal(left, 'x') * 1e9, u.posToVal(left + width, 'x') * 1e9];
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    tell('zoom');
  }

  // list creates the legend: one button per channel, with the value at the cursor.
  list(names) {
    const off = () => (state.channels[this.key] ||= new Set()),
      own = this.layers[0].header;
    this.outputs = [];
    const few = own.channels <= 8;
    this.legend.replaceChildren(
      ...Array.from({ length: own.channels }, (_, c) => {
        const n = own.from + c,
          out = make('span'),
          ns = 'http://www.w3.org/2000/svg',
          svg = document.createElementNS(ns, 'svg'),
          l = document.createElementNS(ns, 'line');
        for (const [k, v] of Object.entries({
          x1: 0,
          x2: 26,
          y1: 6,
          y2: 6,
          stroke: hues(n),
          'stroke-width': 2.5,
          'stroke-dasharray': few ? '' : dashes[n % 4].join(' ')
        }))
          l.setAttribute(k, v);
        svg.append(l);
        this.outputs.push(out);
        const set = (fn) =>
          this.channel.forEach((x, i) => {
            if (x?.n === n) fn(i);
          });
        return make(
          'button',
          {
            ariaPressed: String(!off().has(n)),
            title: names[c] ?? String(n),
            onclick: (ev) => {
              if (off().has(n)) off().delete(n);
              else off().add(n);
              ev.currentTarget.ariaPressed = String(!off().has(n));
              set((i) => this.u.setSeries(i, { show: !off().has(n) }));
              tell('channels');
            },
            onmouseenter: () => set((i) => this.u.setSeries(i, { focus: true })),
            onmouseleave: () => this.u.setSeries(null, { focus: true })
          },
          svg,
          make('span', { className: 'name' }, names[c] ?? String(n)),
          out
        );
      })
    );
    this.read();
  }

  hover(u) {
    if (!this.outputs) return;
    const at = u.cursor.idx;
    if (u.cursor.left < 0 || at == null || !u.over.matches(':hover')) {
      this.read();
      return;
    }
    // Show the last sample at or before the cursor.
    this.outputs.forEach((o, c) => {
      let i = at;
      while (
        i > 0 &&
        (u.data[1 + c][i] === undefined || u.data[0][i] > u.posToVal(u.cursor.left, 'x'))
      )
        i--;
      o.textContent = number(u.data[1 + c][i]);
    });
  }

  // read shows the stored values of the row at the time of the page.
  read() {
    const v = values.get(this.key);
    this.outputs?.forEach((o, c) => {
      o.textContent = v
        ? v.values
          ? number(v.values[(this.layers[0]?.header.from || 0) + c])
          : 'none'
        : '–';
    });
  }

  values() {
    this.read();
  }

  close() {
    this.gone = true;
    this.watch.disconnect();
    this.u?.destroy();
  }
}

// Constant shows a stream that has only one row, such as a static transform, as text.
class Constant {
  constructor(st) {
    this.st = st;
    this.text = make('span', {}, '–');
    this.element = make(
      'p',
      { className: 'fixed' },
      make('b', {}, st.key),
      ' ',
      this.text,
      make('small', {}, ` ${(st.feature.channel_names || []).join(', ')}`)
    );
    this.element.dataset.key = st.key;
  }

  values() {
    const v = values.get(this.st.key)?.values;
    this.text.textContent = v ? v.map(number).join(', ') : 'none';
  }
}

const plotted = (ep) =>
  [...(ep?.streams.values() || [])].filter(
    (st) =>
      st.kind === 'numeric' &&
      !st.feature.ragged &&
      !st.feature.default &&
      !st.feature.mask &&
      (st.rows > 0 || st.problem)
  );
const most = 8; // number of plots that are open at first

// rank orders plots: state, action and joints first; covariances, transforms and constants last.
function rank({ key, feature: f, rows }) {
  if (f.latched && rows <= 1) return 9;
  if (
    /covariance|(^|[._/])(tf|tf_static|diagnostics|header|seq|timestamp|time)([._/]|$)/i.test(key)
  )
    return 8;
  if (/^observation\.state$/.test(key)) return 0;
  if (/^actions?$/.test(key)) return 1;
  if (/^actions?[._/]|(^|[._/])(actions?|state|states|qpos)$|^observation\.state[._/]/i.test(key))
    return 2;
  if (
    /(^|[._/])(joint|gripper)[^._/]*$|(joint|motor|arm|gripper)[^.]*[._/](position|velocity|effort|cmd|command)s?$|(^|[./])(position|qvel|velocity|effort|cmd_vel|commands?)$/i.test(
      key
    )
  )
    return 3;
  return 4;
}

// split returns the streams whose plots are open at first, and those whose plots are closed. State
// and action are open; without them the joints are.
function split() {
  const all = new Map(
    [...plotted(shown.second), ...plotted(shown.first)].map((st) => [st.key, st])
  );
  const list = [...all.values()]
    .map((st, i) => [rank(st), i, st])
    .sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const below = (least) => list.filter(([r]) => r < least).length,
    open = Math.min(below(3) || below(4) || Math.min(3, below(8)), most);
  return [list.slice(0, open), list.slice(open)].map((part) => part.map(([, , st]) => st));
}

const seen = (list) => list.filter((st) => !state.hidden.has(st.key));
const panel = (st) =>
  st.feature.latched && st.rows <= 1 && !st.problem ? new Constant(st) : new Plot(st.key);

kind('plots', (ep, label) => {
  if (label) return []; // the plots of the first episode show the other episodes too
  const lists = split(),
    hidden = lists
      .flat()
      .map((st) => st.key)
      .filter((k) => state.hidden.has(k));
  const more = make(
    'p',
    {},
    'hidden: ',
    ...hidden.map((k) =>
      make(
        'button',
        {
          onclick: () => {
            state.hidden.delete(k);
            tell('streams');
          }
        },
        k
      )
    )
  );
  drawing();
  lookUp();
  return [...seen(lists[0]).map(panel), ...(hidden.length ? [{ element: more }] : [])];
});

kind('more', (ep, label) => {
  if (label) return [];
  const list = seen(split()[1]);
  $('more-box').hidden = !list.length;
  $('more-title').textContent = `${list.length} more stream${list.length === 1 ? '' : 's'}`;
  return list.map(panel);
});

// lookUp requests the exact values at the time of the page, after the requests for frames.
const ask = newest(async () => {
  const ep = shown.first,
    t = state.t;
  if (!ep) return;
  try {
    const list = await get(`e/${index(ep.s, ep.e)}/at?t=${Math.round(t)}&${ep.query}`);
    if (ep === shown.first) tell('values', (values = new Map(list.map((v) => [v.key, v]))));
  } catch {
    /* the streams that cannot be read say so themselves */
  }
});
let looking = 0;
function lookUp() {
  looking ||= setTimeout(
    () => {
      looking = 0;
      ask();
    },
    state.playing ? 150 : 80
  );
}

on('t', lookUp);
