// Panels show streams of the open episodes. Each kind of panel is created in its own file. This
// file tells all panels when the time, the zoom or the theme changes.
import { $ } from './api.js';
import { index, on, shown, state } from './state.js';

// kinds maps the id of a section to the function that makes its panels. open maps it to the panels.
const kinds = new Map(),
  open = new Map();

// kind adds a kind of panel. make(episode, label) returns panels. A panel has an element, and
// optionally the methods time(t), zoom(), paint(), playing() and close(), and the promise drawn.
export const kind = (id, make) => kinds.set(id, make);

// sources returns the episodes on the page, with the labels of all but the first.
export const sources = () =>
  [
    [shown.first, ''],
    [
      shown.second,
      shown.second &&
        `[${shown.second.s !== shown.first.s ? 'second dataset, ' : ''}episode ${index(shown.second.s, shown.second.e)}${shown.second.shift ? `, begins ${Math.abs(shown.second.shift / 1e9).toFixed(3)} s ${shown.second.shift > 0 ? 'later' : 'earlier'}` : ''}]`
    ],
    [shown.aligned, shown.aligned && `[${shown.aligned.hz} Hz grid]`]
  ].filter(([ep]) => ep);

// show creates the panels. If it is called again, only the newest call takes effect. A page has one
// thread, so the other panels wait until the first frames are drawn, or for at most 200 ms.
let showing = 0;
export async function show() {
  const mine = ++showing;
  each('close');
  open.clear();
  place();
  fit();
  for (const [id, make] of kinds) {
    const list = sources().flatMap(([ep, label]) => make(ep, label));
    open.set(id, list);
    $(id).replaceChildren(...list.map((p) => p.element));
    for (const p of list) {
      p.paint?.();
      p.time?.(state.t);
    }
    const frames = list.flatMap((p) => p.drawn || []);
    if (frames.length)
      await Promise.race([Promise.all(frames), new Promise((done) => setTimeout(done, 200))]);
    if (mine !== showing) return;
  }
}

export const each = (what, ...args) => {
  for (const list of open.values()) for (const p of list) p[what]?.(...args);
};

// span returns the visible time range: the zoomed one, or the whole episode.
export const span = () => state.zoom || bounds();

// bounds returns the time from the start of the first episode to the end of the last.
export function bounds() {
  const both = [shown.first, shown.second].filter(Boolean),
    from = Math.min(0, ...both.map((ep) => ep.begin));
  return [from, Math.max(from + 1, ...both.map((ep) => ep.end))];
}

// fit sets the height of cameras and clouds to the largest one at which all are visible, side by
// side or in rows.
function fit() {
  const seen = sources()
    .flatMap(([ep]) => [...ep.streams.values()])
    .filter(
      (st) =>
        st.rows > 0 &&
        !state.hidden.has(st.key) &&
        (st.kind === 'video' || st.kind === 'image' || st.kind === 'pointcloud')
    );
  const ratios = seen.map(({ feature: f }) => (f.width && f.height ? f.width / f.height : 4 / 3)),
    wide = $('views').clientWidth,
    high = Math.max(240, innerHeight * 0.6),
    edge = 2,
    gap = 7,
    caption = 30;
  const fits = (h) => {
    let rows = 1,
      x = 0;
    for (const r of ratios) {
      const w = h * r + edge;
      if (w > wide) return false;
      if (x && x + gap + w > wide) {
        rows++;
        x = 0;
      }
      x += w + (x ? gap : 0);
    }
    return rows * (h + caption) <= high;
  };
  let h = Math.floor(high);
  while (h > 150 && !fits(h)) h -= 4;
  $('views').style.setProperty('--h', h + 'px');
}

// place moves the time lines in all panels. They share one CSS variable.
function place() {
  const [a, b] = span();
  $('main').style.setProperty('--t', (state.t - a) / (b - a));
}

on('t', () => {
  place();
  each('time', state.t);
});
on('zoom', () => {
  place();
  each('zoom');
});
on('theme', () => each('paint'));
on('values', (v) => each('values', v));
on('playing', () => each('playing'));
addEventListener('resize', () => {
  fit();
  each('zoom');
});
