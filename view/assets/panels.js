// Panels show streams of the episodes that are open. Each kind makes its own; here all of them hear of the time, the zoom and the theme.
import { $ } from './api.js';
import { on, shown, state } from './state.js';

const kinds = new Map(), open = new Map(); // id of a section → what makes its panels; the panels

// kind adds a kind: make(episode, label) gives panels, which have an element and what they want of time(t), zoom(), paint(), playing(), close(), drawn (a promise).
export const kind = (id, make) => kinds.set(id, make);

// sources are the episodes that are shown, and what they are called beside the first.
export const sources = () => [[shown.first, ''], [shown.second, shown.second && `[${shown.second.s !== shown.first.s ? 'second dataset, ' : ''}episode ${shown.second.e}]`],
  [shown.aligned, shown.aligned && `[${shown.aligned.hz} Hz grid]`]].filter(([ep]) => ep);

// show makes the panels; the newest of several wins. A page has one thread: what is not a frame waits until the first frames are drawn, or for a moment.
let showing = 0;
export async function show() {
  const mine = ++showing;
  each('close');
  open.clear();
  place();
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
export const span = () => state.zoom || [0, Math.max(shown.first?.duration || 0, shown.second?.duration || 0, 1)];

// place moves the lines of the page's time, in all panels, by one variable.
function place() { const [a, b] = span(); $('main').style.setProperty('--t', (state.t - a) / (b - a)); }

on('t', () => { place(); each('time', state.t); });
on('zoom', () => { place(); each('zoom'); });
on('theme', () => each('paint'));
on('values', (v) => each('values', v));
on('playing', () => each('playing'));
addEventListener('resize', () => each('zoom'));
