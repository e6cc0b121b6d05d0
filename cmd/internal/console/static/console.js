// Shows what the server sends (view.go), and orders.

const $ = (id) => document.getElementById(id);

// element makes <tag class="name"> around children: elements, or text as it is.
function element(tag, name, ...children) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...children);
  return made;
}

const seconds = (ms) => `${(ms / 1000).toFixed(2)} s`;

// clock is when something was, from the order's beginning.
function clock(ms) {
  const time = element('time', '', seconds(ms));
  time.dateTime = `PT${(ms / 1000).toFixed(3)}S`;
  return time;
}

// fill makes list show one element for each item, and touches only what has
// changed: a screen reader should hear what is new, and focus should stay.
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

const who = { client: 'Client', row: 'API and row', provider: 'Provider', mail: 'Mailbox' };
const marks = { point: '●', fault: '✗', repair: '✓', money: '✓' };

function makeEvent(event) {
  const what = element('div', `what ${event.lane} ${event.kind}`, element('span', 'who', `${who[event.lane]}: `));
  if (marks[event.kind]) {
    const mark = element('span', 'mark', `${marks[event.kind]} `);
    mark.setAttribute('aria-hidden', 'true');
    what.append(mark);
  }
  what.append(event.text, element('small', '', event.detail));
  const item = element('li', '', clock(event.at), what);
  return item;
}

function makeCheck(check) {
  const mark = element('span', 'mark', check.ok ? '✓' : '✗');
  mark.setAttribute('role', 'img');
  mark.setAttribute('aria-label', check.ok ? 'holds' : 'does not hold');
  return element('li', check.ok ? '' : 'bad', mark, element('span', '', check.text), element('small', '', check.seen));
}

function makeIntent(intent) {
  const fate = intent.charged ? '✓ charged' : intent.reason ? `declined: ${intent.reason}` : 'not charged';
  const item = element('li', '', element('span', '', `${intent.amount}, ${fate}`), element('small', '', intent.status), element('code', '', intent.id));
  if (intent.charge) item.append(element('code', '', intent.charge));
  return item;
}

const makeMail = (mail) =>
  element('li', '', element('span', '', mail.subject), element('small', '', `to ${mail.to}, after ${seconds(mail.at)}`), element('code', '', mail.id));

// copyable is a block of code with a button.
function copyable(text, what) {
  const button = element('button', 'copy', 'Copy');
  button.type = 'button';
  button.setAttribute('aria-label', `Copy ${what}`);
  return element('div', 'code', element('pre', '', element('code', '', text)), button);
}

const said = (answer) => (answer.status ? `${answer.status} ${answer.text}` : answer.text);

// tally is one line for answers to what was sent at once.
function tally(answers) {
  const counts = new Map();
  for (const answer of answers) counts.set(said(answer), (counts.get(said(answer)) ?? 0) + 1);
  return [...counts].map(([text, n]) => element('li', '', element('span', '', `${n} × ${text}`)));
}

function makeAnswer(answer) {
  const wait = answer.retry_after ? `, again after ${answer.retry_after} s` : '';
  return element('li', '', clock(answer.at), element('span', '', said(answer) + wait));
}

function pretty(body) {
  try {
    return JSON.stringify(JSON.parse(body), null, 2);
  } catch {
    return body;
  }
}

function makeRequest(request, old) {
  const answers = request.answers ?? [];
  const item = old ?? element('li', '', element('h3', '', request.title), copyable(request.curl, `the command line of: ${request.title}`), element('ul', 'answers'));
  item.querySelector('.answers').replaceChildren(...(request.many ? tally(answers) : answers.map(makeAnswer)));
  if (request.body) {
    if (!item.querySelector('details')) item.append(element('details', '', element('summary', '', 'The last answer’s body'), element('pre', '')));
    item.querySelector('details pre').textContent = pretty(request.body);
  }
  return item;
}

function showRow(view) {
  const reached = new Map((view.points ?? []).map((point) => [point.name, point.at]));
  for (const item of $('points').children) {
    const name = item.dataset.point;
    const current = view.row?.point === name && name !== 'finished';
    item.className = reached.has(name) ? 'reached' : '';
    if (current) item.setAttribute('aria-current', 'step');
    else item.removeAttribute('aria-current');
    const text = reached.has(name) ? `${current ? 'here since' : 'reached at'} ${seconds(reached.get(name))}` : '';
    const note = item.querySelector('small');
    if (note.textContent !== text) note.textContent = text;
  }
  const row = view.row;
  const lines = !row ? [] : [
    ['Idempotency-Key', view.key],
    ['attempt', String(row.attempt)],
    ['lease', row.lease_left ? `held by run ${row.attempt}, ${row.lease_left} s left` : 'free'],
    ['last error', row.last_error],
    ['answer', row.response ? `${row.response}, stored` : 'none stored yet'],
    ['order', row.status ? `${row.status}, ${row.order}` : ''],
  ].filter(([, value]) => value);
  $('row').replaceChildren(...lines.flatMap(([name, value]) => [element('dt', '', name), element('dd', '', value)]));
}

const phases = {
  running: (view) => (view.asks ? 'The bank asks the customer …' : 'Under way …'),
  failed: (view) => `This could not be played to its end: ${view.error}`,
  done: (view) => {
    const broken = (view.checks ?? []).filter((check) => !check.ok).length;
    return broken ? `✗ Done: ${broken} of ${view.checks.length} checks do not hold.` : `✓ Done: all ${view.checks.length} checks hold.`;
  },
};

let running = false;

function show(view) {
  const status = `${view.failure}. ${phases[view.phase](view)}`;
  if ($('status').textContent !== status) $('status').textContent = status;
  document.body.dataset.phase = view.phase;
  document.body.dataset.play = view.id;
  working(view.phase === 'running');
  ask(view.asks);
  showRow(view);
  fill($('timeline'), view.events, (event) => `${view.id} ${event.id}`, makeEvent);
  fill($('checks'), view.checks, (check) => `${view.id} ${check.text}`, makeCheck);
  fill($('ledger'), view.ledger, (intent) => intent.id, makeIntent);
  fill($('mails'), view.mails, (mail) => mail.id, makeMail);
  const requests = (view.requests ?? []).map((request, i) => ({ ...request, number: i }));
  fill($('requests'), requests, (request) => `${view.id} ${request.number}`, makeRequest);
}

// working says that an order is on its way. The button keeps its focus meanwhile.
function working(now) {
  running = now;
  const button = document.querySelector('button[type=submit]');
  button.textContent = now ? 'Under way …' : 'Order two teas, $25.00';
  button.setAttribute('aria-disabled', String(now));
}

// post sends JSON, and shows the reason if it is refused.
async function post(path, body) {
  $('problem').textContent = '';
  try {
    const answer = await fetch(path, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (!answer.ok) throw new Error((await answer.json()).error);
    return true;
  } catch (error) {
    $('problem').textContent = error.message;
    return false;
  }
}

$('order').addEventListener('submit', async (submit) => {
  submit.preventDefault();
  if (running) return;
  working(true);
  const { card, failure } = Object.fromEntries(new FormData($('order')));
  if (!(await post('/console/plays', { card, failure }))) working(false);
});

let asked = false;

// ask opens or closes the customer's window.
function ask(now) {
  asked = now;
  if (now && !$('customer').open) $('customer').showModal();
  if (!now && $('customer').open) $('customer').close();
}

function respond(response) {
  if (!asked) return;
  ask(false);
  post('/console/customer', { response });
}

$('customer').addEventListener('click', ({ target }) => { if (target.value) respond(target.value); });
$('customer').addEventListener('close', () => respond('close')); // with Escape

document.addEventListener('click', async ({ target }) => {
  if (!target.matches('.copy')) return;
  await navigator.clipboard.writeText(target.parentElement.querySelector('code').textContent);
  target.textContent = 'Copied';
  setTimeout(() => { target.textContent = 'Copy'; }, 1500);
});
const stream = new EventSource('/console/plays');
stream.onmessage = ({ data }) => show(JSON.parse(data));
stream.onopen = () => { $('problem').textContent = ''; };
stream.onerror = () => { $('problem').textContent = 'orders dev does not answer. This page goes on when it is back.'; };
