// Shows the play that the server reports (play.go), and starts plays.

const $ = (id) => document.getElementById(id);

// element makes <tag class="name"> with children: elements, or strings that are not parsed as HTML.
function element(tag, name, ...children) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...children);
  return made;
}

const seconds = (ms) => `${(ms / 1000).toFixed(2)} s`;

// clock returns the time since the beginning of the play.
function clock(ms) {
  const time = element('time', '', seconds(ms));
  time.dateTime = `PT${(ms / 1000).toFixed(3)}S`;
  return time;
}

// fill shows one element for each item. It changes only the elements of items that have
// changed, so that a screen reader announces only these and the focus stays.
const shown = new WeakMap();
function fill(list, items, id, make) {
  const before = new Map([...list.children].map((child) => [child.dataset.id, child]));
  let previous = null;
  for (const item of items ?? []) {
    const name = String(id(item));
    const text = JSON.stringify(item);
    let child = before.get(name);
    before.delete(name);
    if (!child || shown.get(child) !== text) {
      const made = make(item, child);
      made.dataset.id = name;
      shown.set(made, text);
      if (child && child !== made) child.replaceWith(made);
      child = made;
    }
    const place = previous ? previous.nextSibling : list.firstChild;
    if (child !== place) list.insertBefore(child, place);
    previous = child;
  }
  for (const gone of before.values()) gone.remove();
}

const actors = { client: 'Client', row: 'API and row', provider: 'Provider', mail: 'Mail server' };
const marks = { point: '●', fault: '✗', repair: '✓', money: '✓' };

function makeEvent(event) {
  const what = element('div', `what ${event.lane} ${event.kind}`, element('span', 'actor', `${actors[event.lane]}: `));
  if (marks[event.kind]) {
    const mark = element('span', 'mark', `${marks[event.kind]} `);
    mark.setAttribute('aria-hidden', 'true');
    what.append(mark);
  }
  what.append(`${event.text} `, element('small', '', event.detail));
  const item = element('li', '', clock(event.at), what);
  item.dataset.event = event.id;
  item.dataset.text = event.text;
  return item;
}

function makeCheck(check) {
  const mark = element('span', 'mark', check.ok ? '✓' : '✗');
  mark.setAttribute('role', 'img');
  mark.setAttribute('aria-label', check.ok ? 'holds' : 'does not hold');
  return element('li', check.ok ? '' : 'bad', mark, element('span', '', check.text), element('small', '', check.observed));
}

const plural = (n, noun) => `${n} ${noun}${n === 1 ? '' : 's'}`;

// verdict returns the CSS class of a design, and the text below its counter.
function verdict({ charges, orders, running }) {
  if (charges > 1) return ['bad', '✗ charged twice'];
  if (charges === 1 && orders === 1) return ['good', '✓ charged once'];
  return running ? ['', 'in progress …'] : ['bad', charges ? '✗ charged, but the order is not paid' : '✗ not charged'];
}

function makeDesign(design) {
  const [name, text] = verdict(design);
  const counter = element('p', 'counter', element('b', '', String(design.charges)), ` ${plural(design.charges, 'charge').slice(2)}`);
  const lines = (design.lines ?? []).map((line) => element('li', '', line));
  return element('li', name, element('h3', '', design.title), counter,
    element('p', 'verdict', `${text}, ${plural(design.orders, 'paid order')}`), element('ol', '', ...lines));
}

function showDesigns(view) {
  const running = view.phase === 'running';
  const designs = (view.designs ?? []).map((design) => ({ ...design, running }));
  fill($('designs'), designs, (design) => design.title, makeDesign);
  const summary = running ? '' : designs.map((design) => `${design.title}: ${plural(design.charges, 'charge')}.`).join(' ');
  if ($('summary').textContent !== summary) $('summary').textContent = summary;
}

// breakable lets a long name wrap after an underscore.
const breakable = (text) => text.split(/(?<=_)/).flatMap((part) => [part, element('wbr')]);

let steps = [];
let chosen = -1; // the index of the step that is shown; -1 for the latest

// showStep shows the row before and after a step, and marks its event in the timeline.
function showStep() {
  const i = chosen < 0 ? steps.length - 1 : chosen;
  const step = steps[i];
  const cells = (step?.columns ?? []).map(({ name, value }, column) => {
    const before = steps[i - 1]?.columns[column].value ?? 'no row';
    const after = element('td', '');
    if (value === before) after.append(...breakable(value));
    else after.append(element('mark', '', ...breakable(value)), element('span', 'unseen', ', changed'));
    const head = element('th', '', ...breakable(name));
    head.scope = 'row';
    return { name, changed: value !== before, row: element('tr', '', head, element('td', '', ...breakable(before)), after) };
  });
  const changed = cells.filter((cell) => cell.changed).map((cell) => cell.name);
  const event = [...$('timeline').children].find((item) => item.dataset.event === step?.event);
  const text = step ? `Step ${i + 1} of ${steps.length}: ${event?.dataset.text}. Changed: ${changed.join(', ')}` : 'No step yet.';
  if ($('step').textContent === text) return;
  $('step').textContent = text;
  $('row').replaceChildren(...cells.map((cell) => cell.row));
  for (const item of $('timeline').children) item.removeAttribute('aria-current');
  event?.setAttribute('aria-current', 'step');
  $('previous').setAttribute('aria-disabled', String(i <= 0));
  $('next').setAttribute('aria-disabled', String(i >= steps.length - 1));
}

function walk(by) {
  const last = steps.length - 1;
  chosen = Math.min(Math.max((chosen < 0 ? last : chosen) + by, 0), Math.max(last, 0));
  showStep();
}

$('previous').addEventListener('click', () => walk(-1));
$('next').addEventListener('click', () => walk(1));

const phases = {
  running: (view) => (view.asks ? 'The bank asks the customer …' : 'In progress …'),
  failed: (view) => `The scenario failed: ${view.error}`,
  done: (view) => {
    const failed = (view.checks ?? []).filter((check) => !check.ok).length;
    return failed ? `✗ ${failed} of ${view.checks.length} checks failed.` : `✓ All ${view.checks.length} checks passed.`;
  },
};

let running = false;

function show(view) {
  const status = `${view.fault}: ${phases[view.phase](view)}`;
  if ($('status').textContent !== status) $('status').textContent = status;
  document.body.dataset.phase = view.phase;
  if (document.body.dataset.play !== String(view.id)) chosen = -1;
  document.body.dataset.play = view.id;
  working(view.phase === 'running');
  ask(view.asks);
  showDesigns(view);
  fill($('timeline'), view.events, (event) => `${view.id} ${event.id}`, makeEvent);
  steps = view.steps ?? [];
  showStep();
  $('key').textContent = `Idempotency-Key: ${view.key}`;
  fill($('checks'), view.checks, (check) => `${view.id} ${check.text}`, makeCheck);
}

// working shows whether an order is in progress. The button is not disabled, so that it keeps its focus.
function working(now) {
  running = now;
  const button = document.querySelector('button[type=submit]');
  button.textContent = now ? 'In progress …' : 'Order two teas, $25.00';
  button.setAttribute('aria-disabled', String(now));
}

// post sends a form, and shows the reason if the server rejects it.
async function post(path, form) {
  $('problem').textContent = '';
  const response = await fetch(path, { method: 'POST', body: new URLSearchParams(form) }).catch(() => null);
  if (response && !response.ok) $('problem').textContent = await response.text();
  return response?.ok;
}

$('order').addEventListener('submit', async (submit) => {
  submit.preventDefault();
  if (running) return;
  working(true);
  if (!(await post('/console/play', new FormData($('order'))))) working(false);
});

let asked = false;

// ask opens or closes the customer's window.
function ask(now) {
  asked = now;
  if (now && !$('customer').open) $('customer').showModal();
  if (!now && $('customer').open) $('customer').close();
}

function decide(decision) {
  if (!asked) return;
  ask(false);
  post('/console/decision', { decision });
}

$('customer').addEventListener('click', ({ target }) => { if (target.value) decide(target.value); });
$('customer').addEventListener('close', () => decide('decline')); // also if the user closes the window with Escape

const unreachable = 'playground run does not respond. This page continues when it does.';

// poll reads the latest play five times a second.
let latest = '';
async function poll() {
  const response = await fetch('/console/play').catch(() => null);
  if (!response?.ok) {
    $('problem').textContent = unreachable;
  } else {
    if ($('problem').textContent === unreachable) $('problem').textContent = '';
    const text = await response.text();
    if (text !== latest) {
      latest = text;
      const view = JSON.parse(text);
      if (view) show(view);
    }
  }
  setTimeout(poll, 200);
}
poll();
