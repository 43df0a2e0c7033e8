// Differences of the shown episode and its match in the other dataset: what differs, and by how much.
import { $, get, make } from './api.js';
import { index, positionOf, shown, state, tell } from './state.js';

const wait = 500; // ms between two questions while the datasets are compared

// showDiff shows the match of the episode on the page. It asks until the comparison is complete.
export async function showDiff(run = '') {
  const ep = shown.first,
    box = $('diff-box'),
    title = (text) => {
      $('diff-title').textContent = `Differences: ${text}`;
    };
  box.hidden = shown.info.datasets.length < 2;
  if (box.hidden) return;
  const own = index(ep.s, ep.e);
  let found;
  try {
    found = await get(`diff?s=${ep.s}&episode=${own}${run}`);
  } catch (e) {
    title(e.message);
    return;
  }
  if (ep !== shown.first) return;
  $('diff').replaceChildren();
  if (found.state === 'running' || (run && found.state === 'no')) {
    title(`the datasets are compared, ${found.done} of ${found.total || '…'}`);
    setTimeout(() => ep === shown.first && showDiff(), wait);
    return;
  }
  if (found.state === 'no') {
    title('not compared yet');
    $('diff').append(
      make('li', {}, make('button', { onclick: () => showDiff('&run=1') }, 'compare the datasets'))
    );
    return;
  }
  if (found.problem) {
    title(found.problem);
    return;
  }
  const { match, lines } = found,
    names = ['A', 'B'],
    to = 1 - ep.s;
  if (!match) {
    title(`episode ${own} is only in ${names[ep.s]}`);
    return;
  }
  const there = ep.s ? match.a : match.b,
    { compare } = state,
    isShown = compare?.s === to && index(to, compare.e) === there;
  title(
    `episode ${own} of ${names[ep.s]} ` +
      (lines.length ? 'is changed in' : 'equals') +
      ` episode ${there} of ${names[to]}`
  );
  box.open ||= lines.length > 0;
  $('diff').append(...lines.map((text) => make('li', {}, text)));
  if (isShown) return;
  const show = () => tell('pair', { s: to, e: positionOf(to, there) });
  $('diff').prepend(
    make('li', {}, make('button', { onclick: show }, `show episode ${there} of ${names[to]}`))
  );
}
