// Flags of episodes and of rows. They are written at once if the server has a file of flags, else
// the page offers a download. Flags belong to the first dataset.
import { $, get, make, post } from './api.js';
import { index, shown, state, tell } from './state.js';

export const labels = [
  'bad',
  'failed',
  'good',
  'idle',
  'short',
  'wrong task',
  'camera',
  'out of sync',
  'other'
];

const problem = (text) => {
  $('problem').hidden = !text;
  $('problem').textContent = text || '';
};

// byEpisode maps the index of an episode to its flags.
export let byEpisode = new Map();

function keep(flags) {
  shown.flags = flags;
  byEpisode = new Map();
  for (const f of flags)
    byEpisode.set(f.episode_index, [...(byEpisode.get(f.episode_index) || []), f]);
  $('download').hidden = shown.info.flags_file || !flags.length;
  $('download').href = 'api/flags';
  tell('flags');
}

export const load = async () => keep((await get('flags')).flags);

// flagsOf returns the flags of an episode by its position.
export const flagsOf = (e) => (state.s === 0 && byEpisode.get(index(0, e))) || [];

// flag writes or removes a flag of episodes, by their positions.
export async function flag(positions, body) {
  if (state.s !== 0) {
    problem('flags are of the first dataset');
    return;
  }
  try {
    const episodes = Array.from(positions, (e) => index(0, e));
    keep((await (await post('api/flags', { episodes, ...body })).json()).flags);
    problem('');
  } catch (e) {
    problem('not flagged: ' + e.message);
  }
}

// toggle flags episodes with the label of a digit key. If all have that label, it removes the flags.
export function toggle(positions, digit) {
  const label = labels[digit - 1],
    whole = (e) => flagsOf(e).find((f) => !f.rows);
  return flag(
    positions,
    Array.from(positions).every((e) => whole(e)?.label === label)
      ? { remove: true }
      : { label, note: positions.length === 1 ? whole(positions[0])?.note || '' : '' }
  );
}

// dialog asks for a label and a note. rows limits the flag to some rows, if the user chooses it.
export function dialog(positions, rows) {
  const d = $('flag-dialog'),
    one = positions.length === 1,
    own = one ? flagsOf(positions[0])[0] : null;
  $('flag-episode').textContent = one
    ? `episode ${index(0, positions[0])}`
    : `${positions.length} episodes`;
  [$('flag-label').value, $('flag-note').value] = [own?.label || '', own?.note || ''];
  $('flag-rows').checked = false;
  $('flag-rows').disabled = !rows;
  $('flag-rows').parentElement.hidden = !one;
  $('flag-span').textContent = rows ? `${rows[0]} to ${rows[1] - 1}` : '(zoom first)';
  $('flag-remove').hidden = one && !own;
  d.returnValue = '';
  d.onclose = () => {
    const body = {
      label: $('flag-label').value,
      note: $('flag-note').value,
      ...($('flag-rows').checked ? { rows } : {})
    };
    if (d.returnValue === 'save') flag(positions, body);
    if (d.returnValue === 'remove')
      flag(positions, { remove: true, ...(own?.rows ? { rows: own.rows } : {}) });
  };
  d.showModal();
  $('flag-label').focus();
}

$('labels').append(...labels.map((l) => make('option', { value: l })));
