// Panels show streams of the episodes that are open. Each kind makes its own; here all of them hear of the time, the zoom and the theme.
import { $ } from './api.js';
import { index, on, shown, state } from './state.js';

const kinds = new Map(), open = new Map(); // id of a section → what makes its panels; the panels

// kind adds a kind: make(episode, label) gives panels, which have an element and what they want of time(t), zoom(), paint(), playing(), close(), drawn (a promise).
export const kind = (id, make) => kinds.set(id, make);

// sources are the episodes that are shown, and what they are called beside the first.
export const sources = () => [[shown.first, ''], [shown.second, shown.second && `[${shown.second.s !== shown.first.s ? 'second dataset, ' : ''}episode ${index(shown.second.s, shown.second.e)}${shown.second.shift ? `, begins ${Math.abs(shown.second.shift / 1e9).toFixed(3)} s ${shown.second.shift > 0 ? 'later' : 'earlier'}` : ''}]`],
  [shown.aligned, shown.aligned && `[${shown.aligned.hz} Hz grid]`]].filter(([ep]) => ep);

// show makes the panels; the newest of several wins. A page has one thread: what is not a frame waits until the first frames are drawn, or for a moment.
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
    for (const p of list) { p.paint?.(); p.time?.(state.t); }
    const frames = list.flatMap((p) => p.drawn || []);
    if (frames.length) await Promise.race([Promise.all(frames), new Promise((done) => setTimeout(done, 200))]);
    if (mine !== showing) return;
  }
}

export const each = (what, ...args) => { for (const list of open.values()) for (const p of list) p[what]?.(...args); };

// span is the time that is shown: the zoomed one, or the episode's.
export const span = () => state.zoom || bounds();

// bounds is the time from the begin of the first episode to the end of the last.
export function bounds() {
  const both = [shown.first, shown.second].filter(Boolean), from = Math.min(0, ...both.map((ep) => ep.begin));
  return [from, Math.max(from + 1, ...both.map((ep) => ep.end))];
}

// fit chooses the height of cameras and clouds: the greatest with which all of them are in sight, side by side or in rows.
function fit() {
  const seen = sources().flatMap(([ep]) => [...ep.streams.values()]).filter((st) => st.rows > 0 && !state.hidden.has(st.key) && (st.kind === 'video' || st.kind === 'image' || st.kind === 'pointcloud'));
  const ratios = seen.map(({ feature: f }) => (f.width && f.height ? f.width / f.height : 4 / 3)), wide = $('views').clientWidth, high = Math.max(240, innerHeight * 0.6), edge = 8, gap = 7, caption = 50;
  const fits = (h) => {
    let rows = 1, x = 0;
    for (const r of ratios) {
      const w = h * r + edge;
      if (w > wide) return false;
      if (x && x + gap + w > wide) { rows++; x = 0; }
      x += w + (x ? gap : 0);
    }
    return rows * (h + caption) <= high;
  };
  let h = Math.floor(high);
  while (h > 150 && !fits(h)) h -= 4;
  $('views').style.setProperty('--h', h + 'px');
}

// place moves the lines of the page's time, in all panels, by one variable.
function place() { const [a, b] = span(); $('main').style.setProperty('--t', (state.t - a) / (b - a)); }

on('t', () => { place(); each('time', state.t); });
on('zoom', () => { place(); each('zoom'); });
on('theme', () => each('paint'));
on('values', (v) => each('values', v));
on('playing', () => each('playing'));
addEventListener('resize', () => { fit(); each('zoom'); });
