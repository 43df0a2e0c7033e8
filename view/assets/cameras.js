// Cameras show still frames by row number, which the server decodes. During playback they show the
// video file itself if the browser can play it.
import { columns, frame, make, newest } from './api.js';
import { kind } from './panels.js';
import { state } from './state.js';

const codecs = {
  h264: 'avc1.640028',
  av1: 'av01.0.08M.08',
  hevc: 'hvc1.1.6.L93.B0',
  vp9: 'vp09.00.41.08',
  mpeg4: 'mp4v.20.9'
};
const widths = [96, 160, 320, 480, 640, 960, 1280, 1920];

class Camera {
  constructor(ep, st, label) {
    Object.assign(this, { ep, st, label, row: -2, scale: 1 });
    const f = st.feature,
      ratio = f.width && f.height ? f.width / f.height : 4 / 3;
    this.canvas = make('canvas', { width: 16, height: 12, role: 'img' });
    this.video = make('video', {
      muted: true,
      playsInline: true,
      preload: 'auto',
      hidden: true,
      disablePictureInPicture: true,
      tabIndex: -1
    });
    this.none = make('div', { className: 'none', hidden: true });
    this.caption = make('figcaption');
    this.view = make('div', { className: 'view' }, this.canvas, this.video, this.none);
    this.element = make(
      'figure',
      { className: label ? 'second' : '', title: 'double click: larger' },
      this.view,
      this.caption
    );
    this.element.style.setProperty('--ratio', ratio);
    this.element.dataset.key = st.key;
    this.element.addEventListener('dblclick', () => {
      this.scale = this.scale >= 3 ? 1 : this.scale + 1;
      this.size();
      this.row = -2;
      this.time(state.t);
    });
    this.size();
    this.drawn = new Promise((done) => {
      this.said = done;
    });
    this.draw = newest((row) => this.fetch(row));
    this.playable = st.kind === 'video' && !ep.hz ? null : false; // null: not known yet
  }

  size() {
    this.element.style.setProperty('--scale', this.scale);
  }

  // the window grew
  zoom() {
    if (this.view.clientWidth > this.wide) {
      this.row = -2;
      this.time(state.t);
    }
  }

  // time shows the row at time t.
  time(t) {
    const row = this.ep.row(this.st.key, t);
    if (this.native) {
      this.follow(row);
      return;
    }
    if (row === this.row) return;
    this.row = row;
    if (row < 0) {
      this.video.hidden = true;
      this.none.hidden = false;
      this.none.textContent = this.st.rows
        ? `begins at ${this.ep.seconds(this.st.times[0])}`
        : this.st.problem || 'no frames in this episode';
      this.say(row);
    } else this.draw(row);
  }

  async fetch(row) {
    this.wide = this.view.clientWidth || 320;
    const wide = this.wide * (devicePixelRatio || 1) * 0.9,
      width = widths.find((w) => w >= wide) || 1920;
    try {
      const image = await frame(this.ep.path('frame', this.st.key, `/${row}?w=${width}`));
      if (this.gone) return;
      this.none.hidden = !!image;
      if (!image) this.none.textContent = 'no frame in this row';
      else {
        if (this.canvas.width !== image.width || this.canvas.height !== image.height)
          Object.assign(this.canvas, { width: image.width, height: image.height });
        this.element.style.setProperty('--ratio', image.width / image.height);
        this.canvas.getContext('2d').drawImage(image, 0, 0);
        image.close();
      }
      this.say(row);
    } catch (e) {
      this.none.hidden = false;
      this.none.textContent = e.message;
      this.say(row);
    }
    // The still frame is drawn now.
    if (!this.native && row === this.row) this.video.hidden = true;
  }

  // say shows the number of the row on the screen.
  say(row) {
    const at =
      row >= 0
        ? `row ${row} of ${this.st.rows} · ${this.ep.seconds(this.st.times[row])}`
        : `row – of ${this.st.rows}`;
    this.caption.replaceChildren(
      make('b', {}, (this.label ? this.label + ' ' : '') + this.st.key),
      ' ',
      make('span', {}, at)
    );
    this.canvas.setAttribute('aria-label', `${this.st.key} ${at}`);
    this.element.dataset.row = row;
    this.said();
    this.element.dataset.drawn ||= Math.round(performance.now()); // for make view-bench
  }

  // play plays the video file. If the browser cannot, still frames are shown as before.
  async play() {
    if (this.playable === null) {
      try {
        const {
          header,
          columns: [pts]
        } = await columns(this.ep.path('pts', this.st.key));
        this.playable =
          !!this.video.canPlayType(`video/mp4; codecs="${codecs[header.codec] || header.codec}"`) &&
          pts.length > 1 &&
          !this.st.feature.depth &&
          !header.rotation;
        this.pts = pts;
        this.video.onerror = () => {
          this.playable = false;
          this.rest();
        };
        if (this.playable) this.video.src = 'api/' + this.ep.path('video', this.st.key);
      } catch {
        this.playable = false;
      }
    }
    if (!this.playable || !state.playing || state.speed > 4 || this.gone) return;
    this.video.playbackRate = state.speed;
    const row = Math.max(0, this.ep.row(this.st.key, state.t));
    this.video.currentTime = this.middle(row);
    try {
      await this.video.play();
    } catch {
      return;
    }
    this.native = true;
    this.seen = row;
    const frames = (_, about) => {
      if (!this.native) return;
      this.video.hidden = false; // the first frame is there
      this.seen = this.at(about.mediaTime);
      this.say(this.seen);
      this.video.requestVideoFrameCallback(frames);
    };
    this.video.requestVideoFrameCallback(frames);
  }

  // middle returns a time between a frame and the next one, because at the exact boundary the
  // browser may show either.
  middle(row) {
    const a = this.pts[row],
      b = this.pts[row + 1];
    return Number.isFinite(b) && b > a ? (a + b) / 2 : a + 1e-3;
  }

  // at returns the row whose frame is shown at a time of the file.
  at(time) {
    let best = 0;
    for (let lo = 0, hi = this.st.rows - 1; lo <= hi;) {
      const m = (lo + hi) >> 1;
      if (!(this.pts[m] > time + 1e-4)) {
        best = m;
        lo = m + 1;
      } else hi = m - 1;
    }
    return best;
  }

  // follow keeps the video in step with the time of the page, which is the time of the recording.
  follow(row) {
    if (this.video.playbackRate !== state.speed) this.video.playbackRate = state.speed;
    if (
      row >= 0 &&
      Math.abs(row - this.seen) > Math.max(3, 6 * state.speed) &&
      !this.video.seeking
    ) {
      this.video.currentTime = this.middle(row);
      this.seen = row;
    }
  }

  playing() {
    if (state.playing) this.play();
    else if (this.native || !this.video.hidden) this.rest();
  }

  rest() {
    this.native = false;
    this.video.pause();
    this.row = -2;
    this.time(state.t);
  }

  close() {
    this.gone = true;
    this.native = false;
    this.video.removeAttribute('src');
    this.video.load();
  }
}

kind('cameras', (ep, label) =>
  ep.cameras.filter((st) => !state.hidden.has(st.key)).map((st) => new Camera(ep, st, label))
);
