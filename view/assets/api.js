// Requests to the server. Strings from a dataset are inserted into the page only as textContent.

// ServerError has the class and the hint of an error that the server answered.
export class ServerError extends Error {
  constructor({ message, hint, class: name }) {
    super(message);
    Object.assign(this, { hint, name });
  }

  get full() {
    return this.hint ? `${this.message} ${this.hint}` : this.message;
  }
}

async function answer(path, options) {
  const a = await fetch(path, options);
  if (a.ok) return a;
  const text = await a.text();
  let error = { message: text };
  try {
    error = JSON.parse(text);
  } catch {
    /* plain text */
  }
  throw new ServerError(error);
}

export const get = async (path, options) => (await answer('api/' + path, options)).json();

// columns reads an answer of numbers: a header and Float64Arrays. If header.points is a number,
// each array has that many values. If it is a list, it holds the length of each array.
export async function columns(path, options) {
  const b = await (await answer('api/' + path, options)).arrayBuffer(),
    n = new DataView(b).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(b, 4, n))),
    out = [],
    { points } = header;
  for (let at = 4 + n, i = 0; Array.isArray(points) ? i < points.length : at < b.byteLength; i++) {
    const size = points[i] ?? points;
    out.push(new Float64Array(b, at, size));
    at += 8 * size;
  }
  return { header, columns: out, bytes: b, at: 4 + n };
}

// frame returns an ImageBitmap, or null if the row has no frame.
export async function frame(path, options) {
  const a = await answer('api/' + path, options);
  return a.status === 204 ? null : createImageBitmap(await a.blob());
}

export const post = async (path, body) =>
  await answer(path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body)
  });

// newest runs one request at a time. Of the requests that arrive in the meantime, only the last is
// kept.
export function newest(run) {
  let busy = false,
    next = null;
  const go = async (args) => {
    if (busy) {
      next = args;
      return;
    }
    busy = true;
    try {
      await run(...args);
    } finally {
      busy = false;
      if (next) {
        const n = next;
        next = null;
        go(n);
      }
    }
  };
  return (...args) => go(args);
}

export const $ = (id) => document.getElementById(id);

// make creates an element with attributes and children. A child is an element or text.
export function make(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes)) {
    if (k.startsWith('on')) e.addEventListener(k.slice(2), v);
    else if (k in e && k !== 'list') e[k] = v;
    else e.setAttribute(k, v);
  }
  e.append(...children.filter((c) => c != null));
  return e;
}

// icon draws a symbol as SVG, so that no font needs to contain it.
const icons = {
  play: 'M3 1 15 8 3 15z',
  pause: 'M3 1h4v14H3zM9 1h4v14H9z',
  back: 'M11 1v14L2 8zM12 1h2v14h-2z',
  next: 'M5 1v14l9-7zM2 1h2v14H2z',
  theme:
    'M8 1a7 7 0 0 1 0 14zM8 0a8 8 0 1 0 0 16A8 8 0 0 0 8 0m0 1.5a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13',
  flag: 'M3 0h2v16H3zM5 1h9l-3 4 3 4H5z',
  finding: 'M0 2h16L8 15z',
  up: 'M8 4l5 7H3z',
  down: 'M8 12L3 5h10z'
};
export function icon(name) {
  const ns = 'http://www.w3.org/2000/svg',
    svg = document.createElementNS(ns, 'svg'),
    path = document.createElementNS(ns, 'path');
  for (const [k, v] of Object.entries({
    viewBox: '0 0 16 16',
    class: 'icon',
    'aria-hidden': 'true'
  }))
    svg.setAttribute(k, v);
  path.setAttribute('d', icons[name]);
  svg.append(path);
  return svg;
}

// paint clears a canvas and returns its context, scaled to CSS pixels, and its size.
export function paint(c) {
  const r = devicePixelRatio || 1,
    w = c.clientWidth,
    h = c.clientHeight;
  if (c.width !== Math.round(w * r) || c.height !== Math.round(h * r)) {
    c.width = Math.round(w * r);
    c.height = Math.round(h * r);
  }
  const g = c.getContext('2d');
  g.setTransform(r, 0, 0, r, 0, 0);
  g.clearRect(0, 0, w, h);
  return { g, w, h };
}

export const css = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();
