// Annotations are texts about rows of an episode. They are marked on the lane under the slider.
// Annotations belong to the first dataset.
import { $, get, make, post } from './api.js';
import { after } from './episode.js';
import { bounds } from './panels.js';
import { index, on, shown, state, tell } from './state.js';

let all = null; // of the server; null: not read yet

const own = () =>
  state.s === 0 && all ? all.annotations.filter((a) => a.episode === index(0, state.e)) : [];

// rowTimes returns the timestamps of the episode's rows, or null if its streams have none in common.
const rowTimes = () =>
  [...shown.first.streams.values()].find((st) => st.rows === shown.first.length)?.times;

// time converts a limit of an annotation to ns; unit does the reverse.
function time(v) {
  if (all.seconds) return v * 1e9;
  const times = rowTimes();
  return times?.[v] ?? shown.first.duration;
}

function unit(t, isEnd) {
  if (all.seconds) return Math.max(0, Number((t / 1e9).toFixed(3)));
  const times = rowTimes(),
    n = after(times, t);
  return Math.max(0, Math.min(times.length, isEnd ? n : n - 1));
}

const can = () =>
  all && state.s === 0 && shown.first && !shown.first.timeless && (all.seconds || rowTimes());

// hue returns a colour for a text: equal texts have equal colours.
function hue(text) {
  let h = 0;
  for (const c of text) h = (h * 31 + c.codePointAt(0)) % 360;
  return h;
}

const share = (t) => {
  const [a, b] = bounds();
  return Math.min(1, Math.max(0, (t - a) / (b - a)));
};

function put(element, from, to) {
  element.style.left = `${100 * share(from)}%`;
  element.style.width = `${100 * (share(to) - share(from))}%`;
  return element;
}

function draw() {
  const lane = $('notes');
  lane.hidden = !can();
  if (lane.hidden) return;
  const list = own(),
    hint = make('span', { className: 'hint' }, 'drag here to annotate');
  lane.replaceChildren(
    ...(list.length ? [] : [hint]),
    ...list.map((a) => {
      const b = put(
        make('button', { title: `${a.text}\n${a.from} to ${a.to}`, onclick: () => edit(a, a) }, a.text),
        time(a.from),
        time(a.to)
      );
      b.style.setProperty('--hue', hue(a.text));
      return b;
    })
  );
}

// save replaces the annotation `before` by the annotation a. An empty text removes it.
async function save(a, before) {
  try {
    if (before && a.text && (before.from !== a.from || before.to !== a.to))
      await post('api/annotations', { ...before, text: '' });
    all = await (await post('api/annotations', a)).json();
    tell('problem', '');
  } catch (e) {
    tell('problem', 'not annotated: ' + (e.full ?? e.message));
  }
  link();
  draw();
}

function link() {
  $('download-notes').hidden = shown.info.annotations_file || !all.annotations.length;
}

// edit asks for the text of a range. before is the annotation that exists.
function edit(range, before) {
  const d = $('note-dialog');
  $('note-from').value = range.from;
  $('note-to').value = range.to;
  $('note-from').step = $('note-to').step = all.seconds ? 'any' : 1;
  $('note-unit').textContent = all.seconds ? 'seconds' : 'rows; the last is not included';
  $('note-text').value = before?.text || '';
  $('note-remove').hidden = !before;
  $('note-texts').replaceChildren(
    ...[...new Set(all.annotations.map((a) => a.text))].map((value) => make('option', { value }))
  );
  d.returnValue = '';
  d.onclose = () => {
    const a = {
      episode: index(0, state.e),
      style: before?.style,
      from: Number($('note-from').value),
      to: Number($('note-to').value),
      text: $('note-text').value.trim()
    };
    if (d.returnValue === 'save' && a.text) save(a, before);
    if (d.returnValue === 'remove') save({ ...before, text: '' });
  };
  d.showModal();
  $('note-text').focus();
}

// annotate asks for the text of the zoomed time.
export function annotate() {
  if (!can()) tell('problem', 'the episode has no common rows to annotate');
  else if (!state.zoom) tell('problem', 'drag on the lane under the slider, or zoom a plot first');
  else edit({ from: unit(state.zoom[0]), to: unit(state.zoom[1], true) });
}

// drag marks a range on the lane.
function drag(down) {
  const lane = $('notes');
  if (down.target !== lane && !down.target.matches('.hint')) return;
  const [a, b] = bounds(),
    box = lane.getBoundingClientRect(),
    at = (ev) => a + (b - a) * Math.min(1, Math.max(0, (ev.clientX - box.left) / box.width)),
    draft = make('div', { className: 'draft' }),
    span = (ev) => [Math.min(at(down), at(ev)), Math.max(at(down), at(ev))];
  lane.append(draft);
  lane.setPointerCapture(down.pointerId);
  lane.onpointermove = (ev) => {
    put(draft, ...span(ev));
    tell('seek', at(ev));
  };
  lane.onpointerup = (ev) => {
    lane.onpointermove = lane.onpointerup = null;
    draft.remove();
    const [from, to] = span(ev);
    if (Math.abs(ev.clientX - down.clientX) > 3) edit({ from: unit(from), to: unit(to, true) });
    else tell('seek', at(ev));
  };
}

export async function load() {
  all = await get('annotations');
  link();
  draw();
}

$('notes').addEventListener('pointerdown', drag);
on('shown', draw);
