// Columns of numbers about the episodes of a dataset: length, task, flags, findings, and the metrics
// of package quality. A metric's values are requested when something first shows them.
import { columns } from './api.js';
import { tell } from './state.js';

export class Column {
  // about has name, title, unit, summary, group and worse. values is null if they were not read.
  constructor(about, values = null) {
    Object.assign(this, { unit: '', summary: '', group: '', worse: 0 }, about);
    this.set(values);
  }

  set(values) {
    this.values = values;
    this.ranked = this.scale = null;
  }

  // ranking returns the positions in ascending order of their values. The first `known` of them have
  // a value. Equal values keep the order of the episodes.
  ranking() {
    const v = this.values;
    if (this.ranked?.order.length === v.length) return this.ranked;
    const order = new Uint32Array(v.length);
    let known = 0,
      missing = v.length;
    for (let e = 0; e < v.length; e++) if (v[e] === v[e]) order[known++] = e;
    for (let e = v.length - 1; e >= 0; e--) if (v[e] !== v[e]) order[--missing] = e;
    order.subarray(0, known).sort((a, b) => v[a] - v[b] || a - b);
    return (this.ranked = { order, known });
  }

  // falling returns the positions in descending order. Equal values keep the order of the episodes,
  // and missing ones stay last.
  falling() {
    const { order, known } = this.ranking(),
      v = this.values,
      out = order.slice();
    for (let last = known - 1, k = 0; last >= 0; ) {
      let first = last;
      while (first > 0 && v[order[first - 1]] === v[order[last]]) first--;
      for (let i = first; i <= last; i++) out[k++] = order[i];
      last = first - 1;
    }
    return out;
  }

  // quantile returns the value below which a share of the values lies, or NaN.
  quantile(share) {
    const { order, known } = this.ranking();
    return known ? this.values[order[Math.round(share * (known - 1))]] : NaN;
  }

  // span describes the values: least, most, whether all are whole, and whether they need a
  // logarithmic scale.
  span() {
    if (this.scale?.n === this.values.length) return this.scale;
    const [least, most] = [this.quantile(0), this.quantile(1)];
    let whole = true;
    for (const v of this.values) if (v === v && v !== Math.floor(v)) whole = false;
    const high = Math.max(Math.abs(this.quantile(0.02)), Math.abs(this.quantile(0.98))) || 1;
    return (this.scale = {
      n: this.values.length,
      least,
      most,
      whole,
      log: least > 0 && most / least > 1000,
      digits: whole ? 0 : Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(high))))
    });
  }

  // text returns a value with as many digits as its column needs, so that the numbers align.
  text(v) {
    if (v == null || v !== v) return '–';
    const { digits } = this.span(),
      short = v.toFixed(digits);
    return v && !Number(short) ? v.toPrecision(2) : short;
  }

  // share returns where a value lies between the least and the most, from 0 to 1.
  share(v) {
    const { least, most, log } = this.span(),
      to = log ? Math.log : (x) => x;
    return most > least ? (to(v) - to(least)) / (to(most) - to(least)) : 0;
  }

  // bins counts values in equal steps of the scale, of all episodes or of those at positions.
  bins(count, positions) {
    if (!positions && this.whole?.length === count && this.whole.of === this.values)
      return this.whole;
    const out = new Uint32Array(count),
      v = this.values,
      { least, most, log } = this.span(),
      from = log ? Math.log(least) : least,
      per = most > least ? count / ((log ? Math.log(most) : most) - from) : 0,
      add = (x) => {
        if (x === x) out[Math.min(count - 1, Math.floor(((log ? Math.log(x) : x) - from) * per))]++;
      };
    if (positions) for (let i = 0; i < positions.length; i++) add(v[positions[i]]);
    else {
      for (let e = 0; e < v.length; e++) add(v[e]);
      this.whole = Object.assign(out, { of: v });
    }
    return out;
  }

  // edge returns the value at the left edge of bin i.
  edge(i, count) {
    const { least, most, log } = this.span();
    return log ? least * (most / least) ** (i / count) : least + ((most - least) * i) / count;
  }

  get label() {
    return this.title + (this.unit && this.unit !== 'count' ? ` (${this.unit})` : '');
  }
}

// Columns are those of one dataset, by name.
export class Columns {
  constructor(s) {
    this.s = s;
    this.all = new Map();
  }

  get(name) {
    return this.all.get(name);
  }

  // put sets the values of a column that the page computes itself.
  put(about, values) {
    const c = this.all.get(about.name);
    if (c) c.set(values);
    else this.all.set(about.name, new Column(about, values));
  }

  // metrics declares the columns that the server has.
  metrics(list) {
    for (const m of list) this.all.set(m.name, new Column({ ...m, title: m.name, remote: true }));
  }

  // need requests the columns that have no values yet. It tells 'columns' when they have arrived.
  need(names) {
    const missing = names.map((n) => this.all.get(n)).filter((c) => c?.remote && !c.values && !c.asked);
    if (!missing.length) return;
    for (const c of missing) c.asked = true;
    const list = missing.map((c) => c.name);
    columns(`quality/columns?s=${this.s}&names=${list.map(encodeURIComponent).join(',')}`).then(
      (a) => {
        missing.forEach((c, i) => c.set(a.columns[i]));
        tell('columns');
      },
      (e) => tell('problem', e.message)
    );
  }
}
