// An episode with its streams and their own timestamps.
import { columns } from './api.js';
import { index } from './state.js';

let early = null;

export class Episode {
  // early requests an episode, by its index, before load is called.
  static early(s, n) {
    const path = `e/${n}?s=${s}`,
      answer = columns(path);
    // load reports the error.
    answer.catch(() => {});
    early = { path, answer };
    setTimeout(() => {
      early = null;
    }, 2000);
  }

  static async load(info, s, e, hz = '') {
    const x = new Episode();
    Object.assign(x, {
      info,
      s,
      e,
      hz,
      shift: 0,
      query: `s=${s}${hz ? '&hz=' + encodeURIComponent(hz) : ''}`,
      streams: new Map()
    });
    const path = `e/${index(s, e)}?${x.query}`;
    const { header: about, columns: times } = await (early?.path === path
      ? early.answer
      : columns(path));
    Object.assign(x, {
      about,
      duration: about.duration_ns,
      start: about.start_ns,
      problem: about.problem,
      length: about.episode.length
    });
    const features = new Map(info.datasets[s].features.map((f) => [f.key, f]));
    for (const st of about.streams)
      x.streams.set(st.key, {
        ...st,
        times: times[st.clock],
        feature: features.get(st.key) || {
          key: st.key,
          kind: st.kind,
          shape: [1],
          dtype: 'bool',
          mask: true
        }
      });
    const all = [...x.streams.values()].filter((st) => st.rows > 0);
    x.cameras = all.filter((st) => st.kind === 'video' || st.kind === 'image');
    x.anchor =
      x.cameras[0] ||
      all.filter((st) => !st.feature.default).sort((a, b) => b.rows - a.rows)[0] ||
      all[0];
    x.timeless = all.length > 0 && all.every((st) => st.timeless);
    return x;
  }

  // moveTo shifts the episode to the time of another one. It does so only if both were recorded on
  // one clock, that is if their time spans overlap.
  moveTo(first) {
    const by = Number(BigInt(this.start) - BigInt(first.start));
    if (!by || this.timeless || first.timeless || by > first.duration || -by > this.duration)
      return;
    this.shift = by;
    const moved = new Map();
    for (const st of this.streams.values()) {
      if (!moved.has(st.times))
        moved.set(
          st.times,
          st.times.map((t) => t + by)
        );
      st.times = moved.get(st.times);
    }
  }

  // begin and end are the time span of the episode on the time axis of the page.
  get begin() {
    return this.shift;
  }

  get end() {
    return this.shift + this.duration;
  }

  // opening returns the first time at which all cameras and clouds have something to show. Streams
  // that begin in the second half are ignored.
  opening() {
    const first = [...this.streams.values()]
      .filter(
        (st) =>
          st.rows > 0 && (st.kind === 'video' || st.kind === 'image' || st.kind === 'pointcloud')
      )
      .map((st) => st.times[0]);
    const early = first.filter((t) => t <= this.begin + this.duration / 2);
    return first.length ? Math.max(...(early.length ? early : [Math.min(...first)])) : this.begin;
  }

  // path returns the path of a request about a stream.
  path(what, key, more = '') {
    return (
      `e/${index(this.s, this.e)}/${what}` +
      (what === 'series'
        ? `?key=${encodeURIComponent(key)}&${this.query}${more}`
        : `/${encodeURIComponent(key)}${more}${more.includes('?') ? '&' : '?'}${this.query}`)
    );
  }

  // row returns the last row of a stream at or before a time, or -1.
  row(key, t) {
    const st = this.streams.get(key);
    if (!st) return -1;
    const n = after(st.times, t) - 1;
    return n < 0 && st.feature.latched && st.rows ? 0 : n;
  }

  // step returns the time of the anchor's row that is n rows after time t.
  step(t, n) {
    const times = this.anchor?.times || [];
    if (!times.length) return t;
    const at = after(times, t) - 1;
    return times[Math.min(Math.max(at + n, 0), times.length - 1)];
  }

  seconds(t, digits = 3) {
    return this.timeless ? `row ${Math.round(t / 1e9)}` : (t / 1e9).toFixed(digits) + ' s';
  }
}

// after returns the number of timestamps at or before a time.
export function after(times, t) {
  let lo = 0,
    hi = times.length;
  while (lo < hi) {
    const m = (lo + hi) >> 1;
    if (times[m] <= t) lo = m + 1;
    else hi = m;
  }
  return lo;
}

// gaps returns the time ranges in which a stream has no samples: [from, to] in ns.
export function gaps(ep, st) {
  if (st.gaps) return st.gaps;
  const out = [],
    t = st.times;
  if (t.length && !st.feature.latched && !st.timeless) {
    const least = st.gap_ns || Infinity;
    if (t[0] - ep.begin > Math.min(least, 1e8)) out.push([ep.begin, t[0]]);
    for (let i = 1; i < t.length; i++) if (t[i] - t[i - 1] > least) out.push([t[i - 1], t[i]]);
    if (ep.end - t[t.length - 1] > Math.min(least, 1e8)) out.push([t[t.length - 1], ep.end]);
  }
  return (st.gaps = out);
}
