// Point clouds are drawn with WebGL2 from one buffer with x, y, z and a value per point. The frames
// of /tf are drawn as axes with their paths. Drag or arrow keys rotate, the wheel or +/− zooms.
import { columns, make, newest } from './api.js';
import { kind } from './panels.js';
import { state } from './state.js';
import { Frames } from './tf.js';

const vertex = `#version 300 es
layout(location=0) in vec4 point; uniform mat4 m; uniform vec2 range; uniform float size; out vec3 colour;
void main() {
  gl_Position = m * vec4(point.xyz, 1.0);
  gl_PointSize = max(1.0, size / gl_Position.w);
  float v = clamp((point.w - range.x) / max(range.y - range.x, 1e-9), 0.0, 1.0);
  colour = mix(mix(vec3(.27, .2, .6), vec3(.13, .6, .55), smoothstep(0., .5, v)), vec3(.99, .91, .25), smoothstep(.5, 1., v));
}`;
const fragment = `#version 300 es
precision mediump float; in vec3 colour; uniform vec4 fixed_colour; out vec4 o;
void main() { o = fixed_colour.a > 0.0 ? fixed_colour : vec4(colour, 1.0); }`;

function program(gl) {
  const p = gl.createProgram();
  for (const [kind, text] of [
    [gl.VERTEX_SHADER, vertex],
    [gl.FRAGMENT_SHADER, fragment]
  ]) {
    const s = gl.createShader(kind);
    gl.shaderSource(s, text);
    gl.compileShader(s);
    gl.attachShader(p, s);
  }
  gl.linkProgram(p);
  if (!gl.getProgramParameter(p, gl.LINK_STATUS))
    throw new Error(gl.getProgramInfoLog(p) || 'no shaders');
  return p;
}

// matrix returns a column-major view matrix that looks at a point from a distance, with z up.
function matrix(turn, tilt, far, at, ratio) {
  const [ct, st, cp, sp] = [Math.cos(turn), Math.sin(turn), Math.cos(tilt), Math.sin(tilt)];
  const right = [-st, ct, 0],
    back = [cp * ct, cp * st, sp],
    up = [-sp * ct, -sp * st, cp];
  const f = 1 / Math.tan(0.4),
    near = far / 100,
    end = far * 100,
    a = (end + near) / (near - end),
    b = (2 * end * near) / (near - end);
  const dot = (v) => v[0] * at[0] + v[1] * at[1] + v[2] * at[2];
  const view = [right, up, back].map((v, i) => [...v, -dot(v) - (i === 2 ? far : 0)]);
  const rows = [
    view[0].map((v) => (v * f) / ratio),
    view[1].map((v) => v * f),
    [a * view[2][0], a * view[2][1], a * view[2][2], a * view[2][3] + b],
    view[2].map((v) => -v)
  ];
  const out = new Float32Array(16);
  for (let r = 0; r < 4; r++) for (let c = 0; c < 4; c++) out[4 * c + r] = rows[r][c];
  return out;
}

class Cloud {
  constructor(ep, st, label) {
    Object.assign(this, { ep, st, label, shownRow: -2, turn: 0.7, tilt: 0.5, near: 1 });
    this.canvas = make('canvas', { tabIndex: 0, role: 'img', ariaLabel: st.key });
    this.caption = make('figcaption');
    this.none = make('div', { className: 'none', hidden: true });
    this.names = make('div', { className: 'names', ariaHidden: 'true' });
    this.tf = new Frames(ep, st, () => this.draw());
    this.element = make(
      'figure',
      { className: label ? 'second' : '' },
      make('div', { className: 'view' }, this.canvas, this.names, this.none),
      this.caption,
      this.tf.element
    );
    this.element.dataset.key = st.key;
    this.fetch = newest((row) => this.load(row));
    const gl = (this.gl = this.canvas.getContext('webgl2', {
      antialias: true,
      preserveDrawingBuffer: true
    }));
    if (!gl) {
      this.fail('this browser has no WebGL2');
      return;
    }
    this.program = program(gl);
    this.at = Object.fromEntries(
      ['m', 'range', 'size', 'fixed_colour'].map((n) => [n, gl.getUniformLocation(this.program, n)])
    );
    this.buffer = gl.createBuffer();
    this.axes = gl.createBuffer();
    const c = this.canvas;
    c.addEventListener('pointerdown', (ev) => {
      c.setPointerCapture(ev.pointerId);
      this.drag = [ev.clientX, ev.clientY];
    });
    c.addEventListener('pointermove', (ev) => {
      if (this.drag) {
        this.move((this.drag[0] - ev.clientX) / 150, (ev.clientY - this.drag[1]) / 150, 1);
        this.drag = [ev.clientX, ev.clientY];
      }
    });
    c.addEventListener('pointerup', () => {
      this.drag = null;
    });
    c.addEventListener(
      'wheel',
      (ev) => {
        ev.preventDefault();
        this.move(0, 0, ev.deltaY > 0 ? 1.1 : 0.9);
      },
      { passive: false }
    );
    // A double click switches between the whole cloud and the surroundings of the sensor.
    c.addEventListener('dblclick', () => {
      [this.middle, this.near] = this.near < 0.3 ? [this.centre, 1] : [[0, 0, 0], 0.05];
      this.draw();
    });
    c.addEventListener('keydown', (ev) => {
      const m = {
        ArrowLeft: [0.1, 0, 1],
        ArrowRight: [-0.1, 0, 1],
        ArrowUp: [0, 0.1, 1],
        ArrowDown: [0, -0.1, 1],
        '+': [0, 0, 0.9],
        '-': [0, 0, 1.1]
      }[ev.key];
      if (m) {
        this.move(...m);
        ev.preventDefault();
        ev.stopPropagation();
      }
    });
  }

  move(turn, tilt, zoom) {
    this.turn += turn;
    this.tilt = Math.min(1.5, Math.max(-1.5, this.tilt + tilt));
    this.near *= zoom;
    this.draw();
  }

  fail(text) {
    this.none.hidden = false;
    this.none.textContent = text;
  }

  time(t) {
    const row = this.ep.row(this.st.key, t);
    if (row === this.shownRow || !this.gl) return;
    this.shownRow = row;
    if (row < 0) this.fail(`begins at ${this.ep.seconds(this.st.times[0])}`);
    else this.fetch(row);
  }

  async load(row) {
    try {
      const { header, bytes, at } = await columns(this.ep.path('cloud', this.st.key, '/' + row));
      const points = new Float32Array(bytes, at, 4 * header.points),
        gl = this.gl;
      this.none.hidden = true;
      this.count = header.points;
      if (!this.box) this.frame(points);
      gl.bindBuffer(gl.ARRAY_BUFFER, this.buffer);
      gl.bufferData(gl.ARRAY_BUFFER, points, gl.DYNAMIC_DRAW);
      const text =
        `row ${row} of ${this.st.rows} · ${this.ep.seconds(this.st.times[row])} · ${header.points} points` +
        (header.voxel ? ` of ${header.of}, one a voxel of ${header.voxel.toPrecision(2)}` : '') +
        ` · colour: ${header.value}`;
      this.caption.replaceChildren(
        make('b', {}, (this.label ? this.label + ' ' : '') + this.st.key),
        ' ',
        text
      );
      this.canvas.ariaLabel = `${this.st.key} ${text}; arrows turn it`;
      this.element.dataset.row = row;
      this.draw();
    } catch (e) {
      this.fail(e.message);
    }
  }

  // frame sets the view to the middle of most points. Later rows keep this view, so that motion is
  // visible.
  frame(p) {
    const n = p.length / 4,
      of = (c) => {
        const v = Float32Array.from({ length: n }, (_, i) => p[4 * i + c]).sort();
        return [v[Math.floor(n * 0.02)] ?? 0, v[Math.floor(n * 0.98)] ?? 1];
      };
    this.box = [of(0), of(1), of(2)];
    this.range = of(3);
    this.middle = this.centre = this.box.map(([a, b]) => (a + b) / 2);
    this.span = Math.max(...this.box.map(([a, b]) => b - a), 1e-3);
  }

  values(v) {
    if (this.tf.at(v)) this.draw();
  }

  paint() {
    this.draw();
  }

  zoom() {
    this.draw();
  }

  draw() {
    const gl = this.gl,
      c = this.canvas,
      r = devicePixelRatio || 1;
    if (!gl || !this.box) return;
    const w = Math.round(c.clientWidth * r),
      h = Math.round(c.clientHeight * r);
    if (c.width !== w || c.height !== h) {
      c.width = w;
      c.height = h;
    }
    gl.viewport(0, 0, w, h);
    gl.clearColor(0.05, 0.06, 0.08, 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.enable(gl.DEPTH_TEST);
    gl.useProgram(this.program);
    const m = matrix(this.turn, this.tilt, this.span * 1.3 * this.near, this.middle, w / h),
      points = (buffer) => {
        gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
        gl.vertexAttribPointer(0, 4, gl.FLOAT, false, 16, 0);
      };
    gl.uniformMatrix4fv(this.at.m, false, m);
    gl.uniform2f(this.at.range, ...this.range);
    gl.uniform1f(this.at.size, (this.span * 0.012 * h) / 300);
    gl.enableVertexAttribArray(0);
    points(this.buffer);
    gl.uniform4f(this.at.fixed_colour, 0, 0, 0, 0);
    gl.drawArrays(gl.POINTS, 0, this.count);
    points(this.axes);
    for (const { points: p, colour, strip } of this.tf.lines(this.span * this.near)) {
      gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(p), gl.DYNAMIC_DRAW);
      gl.uniform4f(this.at.fixed_colour, ...colour, 1);
      gl.drawArrays(strip ? gl.LINE_STRIP : gl.LINES, 0, p.length / 4);
    }
    this.names.replaceChildren(
      ...this.tf.places().flatMap(([name, [x, y, z]]) => {
        const of = (r) => m[r] * x + m[4 + r] * y + m[8 + r] * z + m[12 + r],
          d = of(3),
          e = make('span', {}, name);
        [e.style.left, e.style.top] = [`${50 + (50 * of(0)) / d}%`, `${50 - (50 * of(1)) / d}%`];
        return d > 0 ? [e] : [];
      })
    );
  }

  close() {
    this.gl?.getExtension('WEBGL_lose_context')?.loseContext();
  }
}

kind('clouds', (ep, label) =>
  [...ep.streams.values()]
    .filter((st) => st.kind === 'pointcloud' && st.rows > 0 && !state.hidden.has(st.key))
    .map((st) => new Cloud(ep, st, label))
);
