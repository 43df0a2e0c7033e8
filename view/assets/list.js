// The list of episodes and its filters. The page contains elements only for the visible rows.
import { $, css, frame, icon, make, paint } from './api.js';
import { column, filter, listing, order, place, task, where } from './episodes.js';
import { flagsOf } from './flags.js';
import { index, on, shown, state, tell } from './state.js';

const high = 52,
  bars = 40;

// shownColumn reports whether the list shows the values of a column after the length.
const shownColumn = (c) => c?.values && c.name !== 'length' && c.name !== 'task';

// hue returns the colour of an episode: blue for the least value of the column, orange for the most.
export const hue = (c, e) =>
  c?.values && c.values[e] === c.values[e]
    ? `color-mix(in oklab, var(--low), var(--high) ${Math.round(100 * c.share(c.values[e]))}%)`
    : 'transparent';

function counted() {
  const l = listing(),
    n = shown.info.datasets[state.s].num_episodes,
    q = l.quality;
  $('count').textContent =
    `${order.length} of ${n} episodes` + (l.done < n ? ` (${l.done} read)` : '');
  $('doctor').hidden = l.doctor !== 'no';
  $('measure').hidden = q.state === 'running' || (q.state === 'done' && q.frames);
  $('measure').textContent = q.state === 'done' ? 'measure images' : 'measure';
  $('quality').textContent =
    q.problem ||
    {
      running: q.total ? `measuring: ${Math.floor((100 * q.done) / q.total)} %` : 'measuring …',
      done: q.stored || !q.command ? '' : 'metrics: not saved',
      no: q.command ? 'no metrics: ' + q.command : ''
    }[q.state];
  $('quality').title = q.state === 'done' && q.command ? 'To save them, run: ' + q.command : '';
  $('quality').hidden = !$('quality').textContent;
}

// histogram draws all episodes, and in front those that pass the filters.
let limitsShown = false;
function histogram() {
  const c = column(state.by),
    canvas = $('histogram'),
    { g, w, h } = paint(canvas);
  limitsShown = !!c?.values && c.ranking().known > 0;
  if (!limitsShown) return;
  const { least, most } = c.span(),
    all = c.bins(bars),
    top = Math.max(...all);
  for (const [counts, style] of [
    [all, css('--edge')],
    [c.bins(bars, order), css('--accent')]
  ]) {
    g.fillStyle = style;
    counts.forEach((x, i) => {
      const tall = Math.max(1, (x / top) * (h - 14));
      if (x) g.fillRect((i * w) / bars, h - 13 - tall, w / bars - 1, tall);
    });
  }
  g.fillStyle = css('--soft');
  g.font = '11px system-ui';
  // The canvas keeps the alignment of the previous text.
  g.textAlign = 'left';
  g.fillText(c.text(least), 0, h - 1);
  g.textAlign = 'right';
  g.fillText(c.text(most), w, h - 1);
  canvas.ariaLabel = `histogram of ${c.label}: ${c.text(least)} to ${c.text(most)}`;
}

const made = new Map(); // episode → element
function draw() {
  if (state.table || !listing()) return;
  const list = $('list'),
    box = $('rows'),
    first = Math.max(0, Math.floor(list.scrollTop / high) - 3),
    last = Math.min(order.length, Math.ceil((list.scrollTop + list.clientHeight) / high) + 3);
  box.style.height = order.length * high + 'px';
  const keep = new Set(),
    by = column(state.by),
    colour = state.colour ? column(state.colour) : null;
  for (let i = first; i < last; i++) {
    const e = order[i],
      l = listing(),
      flags = flagsOf(e),
      found = l.found.get(e)?.length || 0,
      id = state.s + ':' + e;
    keep.add(id);
    const tags = [
        ...flags.flatMap((f) => [icon('flag'), ' ' + (f.label || 'flagged') + ' ']),
        ...(found ? [icon('finding'), ` ${found}`] : [])
      ],
      text = task(e);
    let row = made.get(id);
    if (!row) {
      const thumb = make('canvas', { width: 58, height: 44, ariaHidden: 'true' }),
        name = make('span'),
        words = make('small'),
        tag = make('span', { className: 'tags' });
      row = make(
        'div',
        {
          className: 'row',
          role: 'option',
          id: 'episode-' + state.s + '-' + e,
          onclick: () => tell('open', e)
        },
        thumb,
        make('div', {}, name, tag, words)
      );
      Object.assign(row, { parts: { thumb, name, words, tag } });
      made.set(id, row);
      box.append(row);
      thumbnail(id, e, thumb);
    }
    row.style.top = i * high + 'px';
    row.ariaSelected = String(e === state.e);
    row.ariaPosInSet = String(i + 1);
    row.ariaSetSize = String(order.length);
    row.parts.name.textContent =
      `${index(state.s, e)} · ${l.length[e]} rows ` +
      (shownColumn(by) && by.values[e] === by.values[e]
        ? `· ${by.title} ${by.text(by.values[e])} `
        : '');
    row.style.setProperty('--hue', hue(colour, e));
    row.parts.words.textContent = text;
    row.parts.tag.title = found ? `${found} findings` : '';
    row.parts.tag.replaceChildren(...tags);
  }
  for (const [id, row] of made)
    if (!keep.has(id)) {
      row.remove();
      made.delete(id);
    }
  list.setAttribute('aria-activedescendant', `episode-${state.s}-${state.e}`);
}

// Thumbnails are requested when scrolling stops, two at a time.
const queue = [];
let running = 0;
function thumbnail(id, e, canvas) {
  const data = shown.info.datasets[state.s],
    camera = data.features.find((f) => f.kind === 'video' || f.kind === 'image');
  if (!camera) {
    canvas.hidden = true;
    return;
  }
  const row = camera.clock ? 0 : listing().length[e] >> 1,
    path = `e/${index(state.s, e)}/frame/${encodeURIComponent(camera.key)}/${row}?w=96&s=${state.s}`;
  setTimeout(() => {
    if (made.get(id)?.contains(canvas)) {
      queue.push([id, path, canvas]);
      next();
    }
  }, 150);
}

async function next() {
  if (running >= 2 || !queue.length) return;
  const [id, path, canvas] = queue.pop();
  if (!made.has(id)) {
    next();
    return;
  }
  running++;
  try {
    const image = await frame(path);
    if (image) canvas.getContext('2d').drawImage(image, 0, 0, 58, 44);
  } catch {
    /* the episode says why when it is opened */
  }
  running--;
  next();
}

export function reveal() {
  const at = place[state.e] ?? -1,
    list = $('list');
  if (at >= 0 && (at * high < list.scrollTop || (at + 1) * high > list.scrollTop + list.clientHeight))
    list.scrollTop = at * high - list.clientHeight / 2;
  draw();
}

export function limits(least, most) {
  [state.least, state.most] = [$('least').value, $('most').value] = [least, most];
}

// choices fills a select with the columns, by group.
export function choices(select, first, chosen) {
  const groups = new Map();
  for (const c of listing().columns.all.values())
    if (c.name !== 'length' && c.name !== 'task')
      groups.set(c.group, [...(groups.get(c.group) || []), c]);
  select.replaceChildren(
    make('option', { value: '' }, first),
    ...[...groups].map(([label, list]) =>
      make('optgroup', { label }, ...list.map((c) => make('option', { value: c.name }, c.label)))
    )
  );
  select.value = chosen;
}

// show selects the column of the histogram, the limits and the order.
export function show(name, sort) {
  if ((name || '') !== state.by) limits('', '');
  [state.by, state.sort] = [name || '', sort];
  [$('by').value, $('sort').value] = [state.by, sort];
  filter();
  tell('filter');
}

function saySo(problem) {
  const p = $('where-problem');
  p.hidden = !problem;
  p.textContent = typeof problem === 'string' ? problem : problem ? problem.full : '';
  p.className = typeof problem === 'string' ? 'soft' : 'error';
  $('where').setAttribute('aria-invalid', String(!!problem && typeof problem !== 'string'));
}

// cut limits the column to the bar that was clicked, or removes the limits.
function cut(ev) {
  if (!limitsShown) return;
  const c = column(state.by),
    { least, most, whole } = c.span(),
    i = Math.min(bars - 1, Math.floor((ev.offsetX / $('histogram').clientWidth) * bars)),
    round = (v) => (whole ? Math.ceil(v) : Number(v.toPrecision(6))),
    from = i ? round(c.edge(i, bars)) : least,
    to = i === bars - 1 ? most : Math.max(from, round(c.edge(i + 1, bars)) - (whole ? 1 : 0));
  if (state.least === String(from)) limits('', '');
  else limits(String(from), String(to));
  filter();
  tell('filter');
}

export function start() {
  const bind = (id, key, event = 'input') => {
    const x = $(id);
    if (x.type === 'checkbox') x.checked = state[key];
    else x.value = state[key];
    x.addEventListener(event, () => {
      state[key] = x.type === 'checkbox' ? x.checked : x.value;
      $('list').scrollTop = 0;
      if (key === 'by') limits('', '');
      if (key === 'where') where();
      else filter();
      tell('filter');
    });
  };
  for (const id of ['least', 'most', 'sort', 'flagged', 'found', 'by']) bind(id, id);
  bind('filter', 'q');
  bind('where', 'where', 'change');
  $('list').addEventListener('scroll', () => requestAnimationFrame(draw), { passive: true });
  $('histogram').addEventListener('click', cut);
  addEventListener('resize', filter);
  on('theme', filter);
}

on('table', () => {
  histogram();
  draw();
});
on('order', () => {
  counted();
  histogram();
  draw();
});
on('listed', () => {
  choices($('by'), 'length', state.by);
  reveal();
  $('list').dataset.listed ||= Math.round(performance.now()); // for make view-bench
  if (state.where) where();
});
on('metrics', () => {
  choices($('by'), 'length', state.by);
  if (state.where) where();
});
on('where', saySo);
