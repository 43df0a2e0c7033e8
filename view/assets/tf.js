// The frames of /tf in a point cloud: axes at the time of the page, and the path of a moving frame.
// Streams are named tf.PARENT.CHILD.translation and .rotation.
import { columns, make } from './api.js';

const named = /(?:^|\.)tf(?:_static)?\.([^.]+)\.([^.]+)\.translation$/,
  sensor = /velodyne|lidar|laser|ouster|livox|hesai|points|cloud|depth/i;
const hues = [
    [1, 0.4, 0.4],
    [0.4, 1, 0.4],
    [0.5, 0.6, 1]
  ],
  still = { q: [0, 0, 0, 1], t: [0, 0, 0] };

// turn rotates a vector by a unit quaternion: v + 2 q × (q × v + w v).
function turn([x, y, z, w], v) {
  const cross = (a, b) => [
      a[1] * b[2] - a[2] * b[1],
      a[2] * b[0] - a[0] * b[2],
      a[0] * b[1] - a[1] * b[0]
    ],
    q = [x, y, z];
  return cross(
    q,
    cross(q, v).map((c, i) => c + w * v[i])
  ).map((c, i) => v[i] + 2 * c);
}
const times = ([a, b, c, d], [x, y, z, w]) => [
  d * x + a * w + b * z - c * y,
  d * y - a * z + b * w + c * x,
  d * z + a * y - b * x + c * w,
  d * w - a * x - b * y - c * z
];
const place = (pose, v) => turn(pose.q, v).map((c, i) => c + pose.t[i]);
const joined = (a, b) => ({ q: times(a.q, b.q), t: place(a, b.t) });
const inverse = ({ q: [x, y, z, w], t }) => {
  const q = [-x, -y, -z, w];
  return { q, t: turn(q, t).map((c) => -c) };
};

export class Frames {
  constructor(ep, st, changed) {
    this.links = [...ep.streams.values()]
      .filter((x) => x.rows > 0 && named.test(x.key))
      .map((x) => {
        const [, parent, child] = named.exec(x.key);
        return { key: x.key, parent, child };
      });
    this.world = new Map();
    const children = new Set(this.links.map((l) => l.child)),
      roots = [...new Set(this.links.map((l) => l.parent))].filter((p) => !children.has(p));
    this.root = roots[0];
    const all = [...roots, ...children];
    // a recording may not state the frame of the points
    this.own = all.find((n) => sensor.test(n)) ?? this.root;
    const choice = make(
      'select',
      {
        ariaLabel: 'the frame that the points are in',
        onchange: () => {
          this.own = choice.value;
          changed();
        }
      },
      ...all.map((n) => make('option', { value: n }, n))
    );
    if (all.length) choice.value = this.own;
    this.element = make(
      'figcaption',
      { hidden: !all.length },
      make('label', {}, 'axes: /tf; points are in ', choice)
    );
    for (const l of this.links) {
      columns(ep.path('series', l.key, '&px=300')).then(
        ({ columns: c, header }) => {
          if (header.points > 1) {
            l.way = [...c[1]].map((_, i) => [c[1][i], c[2][i], c[3][i]]);
            changed();
          }
        },
        () => {}
      );
    }
  }

  // at computes the poses of the frames from values at one time.
  at(values) {
    const seen = new Map(this.links.map((l) => [l.child, l])),
      pose = (name, deep = 0) => {
        const l = seen.get(name);
        if (!l || deep > 50) return still;
        const t = values.get(l.key)?.values,
          q = values.get(l.key.replace(/translation$/, 'rotation'))?.values;
        return joined(pose(l.parent, deep + 1), {
          t: t?.every(Number.isFinite) ? t : still.t,
          q: q?.every(Number.isFinite) ? q : still.q
        });
      };
    if (this.links.length)
      this.world = new Map(
        [...new Set(this.links.flatMap((l) => [l.parent, l.child]))].map((n) => [n, pose(n)])
      );
    return this.links.length > 0;
  }

  // local returns the pose of a frame relative to the frame of the points.
  local(name) {
    return joined(inverse(this.world.get(this.own) || still), this.world.get(name) || still);
  }

  places() {
    return [...this.world.keys()].map((n) => [n, this.local(n).t]);
  }

  // lines returns the lines to draw, with x, y, z, 0 per point.
  lines(span) {
    const axes = (pose, size) =>
      hues.map((colour, i) => ({
        colour,
        points: [
          ...pose.t,
          0,
          ...place(
            pose,
            [0, 1, 2].map((k) => (k === i ? size : 0))
          ),
          0
        ]
      }));
    const ways = this.world.size
      ? this.links
          .filter((l) => l.way)
          .map((l) => {
            const p = this.local(l.parent);
            return {
              strip: true,
              colour: [1, 0.8, 0.3],
              points: l.way
                .filter((v) => v.every(Number.isFinite))
                .flatMap((v) => [...place(p, v), 0])
            };
          })
      : [];
    return [
      ...axes(still, span / 8),
      ...[...this.world.keys()].flatMap((n) => axes(this.local(n), span / 16)),
      ...ways
    ];
  }
}
