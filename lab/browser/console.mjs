// Tests /console, see check.sh.
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';
import png from 'upng-js';

const [, , executablePath, url, folder, pictures] = process.argv;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const context = await chromium.launchPersistentContext(`${folder}/profile`, {
  executablePath,
  viewport: { width: 1400, height: 1000 },
  reducedMotion: 'reduce',
  // The debugger loads axe-core in an isolated world, so the page's CSP stays enabled.
  args: [
    '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync',
  ],
});
context.setDefaultTimeout(60_000);

const problems = [];
context.on('request', (request) => {
  const to = new URL(request.url());
  if (to.origin !== url && to.protocol !== 'data:') problems.push(`calls ${to.origin}`);
});
context.on('console', (message) => {
  if (message.type() === 'error') problems.push(`console: ${message.text()}`);
});
context.on('weberror', (error) => problems.push(`script: ${error.error().message}`));

const page = context.pages()[0] ?? (await context.newPage());
const expect = (good, what) => { if (!good) problems.push(what); };
const text = (selector) => page.locator(selector).innerText();
const picture = async (name) => { if (pictures) await page.screenshot({ path: `${pictures}/${name}.png`, fullPage: true }); };

// documentationPicture writes docs/console.png, in 64 colours: what each of the three designs has charged.
async function documentationPicture() {
  if (!pictures) return;
  const pixels = png.decode(await page.locator('section[aria-labelledby=designs-title]').screenshot());
  writeFileSync(`${pictures}/console.png`, Buffer.from(png.encode(png.toRGBA8(pixels), pixels.width, pixels.height, 64)));
}

// accessible checks WCAG 2.2 AA.
async function accessible(where) {
  const session = await context.newCDPSession(page);
  const { frameTree } = await session.send('Page.getFrameTree');
  const world = await session.send('Page.createIsolatedWorld', { frameId: frameTree.frame.id });
  const run = (expression) => session.send('Runtime.evaluate', {
    expression, contextId: world.executionContextId, awaitPromise: true, returnByValue: true,
  });
  await run(axe);
  const { result } = await run(`axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] })
    .then(({ violations, passes }) => ({ passes: passes.length, violations: violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.target + ' ' + n.failureSummary).join(' | ')) }))`);
  expect(result.value?.passes > 10, `${where}: axe-core did not run`);
  for (const violation of result.value?.violations ?? []) problems.push(`${where}: ${violation.slice(0, 400)}`);
  await session.detach();
}

async function fits(width) {
  await page.setViewportSize({ width, height: 768 });
  expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `the page is wider than ${width} pixels`);
}

// ended waits for the end of the scenario that press starts, and returns its state.
async function ended(press) {
  const before = await page.evaluate(() => document.body.dataset.play ?? '');
  await press();
  await page.waitForFunction((old) => {
    const { play, phase } = document.body.dataset;
    return play && play !== old && phase !== 'running';
  }, before);
  const lines = await page.locator('#checks li').evaluateAll((items) => items.map((item) => ({
    holds: item.querySelector('[role=img]').getAttribute('aria-label') === 'holds',
    text: item.querySelector('span:not(.mark)').textContent,
    seen: item.querySelector('small').textContent,
  })));
  return { phase: await page.evaluate(() => document.body.dataset.phase), lines, timeline: await text('#timeline') };
}

// The results that each fault adds to the five common checks, and the charges of the three
// designs with a card that pays.
const faults = {
  none: { checks: 5, charges: [1, 1, 1] },
  repeat: { checks: 6, timeline: [', replayed'], charges: [1, 1, 1] },
  concurrent: { checks: 6, timeline: ['20 concurrent requests'] },
  other: { checks: 6, timeline: ['idempotency-key-reused'] },
  lost: { checks: 7, timeline: ['the response is lost', 'the connection is restored', 'payment-outcome-unknown'], charges: [2, 1, 1] },
  killed: { checks: 6, timeline: ['SIGKILL', 'gets no response', 'started again', 'idempotency-key-in-progress', 'run 2 takes over'], charges: [2, 1, 1] },
  error: { checks: 6, timeline: [': 500 after', 'read the intent'], charges: [2, 1, 1] },
  late: { checks: 7, timeline: ['25 hours pass'], charges: [2, 2, 1] },
};
const declined = ['0 charges, $0.00', '1 order, payment_failed', '0 receipts, 0 staged'];
const cards = {
  pm_card_visa: ['201 created', '1 charge, $25.00', '1 order, paid', '1 receipt, 0 staged'],
  pm_card_visa_chargeDeclinedInsufficientFunds: ['402 payment-declined', ...declined],
};

// The customer's decisions in the approval dialog, and their results.
const endings = {
  Approve: { seen: cards.pm_card_visa, checks: 1 },
  Decline: { seen: ['402 payment-declined', ...declined], checks: 2, timeline: ['cancel the intent'] },
};

async function play(card, fault, press, ending = { seen: cards[card], checks: 0 }, wanted = faults[fault]) {
  const where = `${card}, ${fault}, ${ending.seen[0]}`;
  const { phase, lines, timeline } = await ended(press);
  expect(phase === 'done', `${where}: ${await text('#status')}`);
  expect(lines.length === wanted.checks + ending.checks, `${where}: ${lines.length} checks`);
  for (const line of lines) expect(line.holds, `${where}: failed: ${line.text}: ${line.seen}`);
  for (const seen of ending.seen) expect(lines.some((line) => line.seen === seen), `${where}: no check observed ${seen}`);
  for (const part of [...(wanted.timeline ?? []), ...(ending.timeline ?? [])]) expect(timeline.includes(part), `${where}: the timeline does not contain ${part}`);
  expect(timeline.includes('the receipt is accepted') === (ending.seen[0] === '201 created'), `${where}: wrong number of receipts`);
  const row = await page.locator('#row tr').evaluateAll((rows) => rows.map((row) => [...row.children].map((cell) => cell.innerText)));
  expect(row.length === 7 && row[0][2].startsWith('finished'), `${where}: the row is not finished: ${row}`);
  expect(await page.locator('#row mark').count() > 0, `${where}: no column is marked`);
  const charges = card === 'pm_card_visa' ? wanted.charges ?? [] : [];
  const counted = (await page.locator('.counter b').allInnerTexts()).map(Number);
  expect(String(counted) === String(charges), `${where}: charges ${counted}, expected ${charges}`);
  expect((await page.locator('#summary').textContent()).split('.').length === charges.length + 1, `${where}: the charges are not announced`);
}

const button = page.getByRole('button', { name: 'Order two teas' });
await page.goto(process.env.CONSOLE_URL);
expect(page.url() === `${url}/console`, 'the token is still in the URL');
await page.getByText('No order yet.').waitFor();
await accessible('empty page');

// The button sticks to the bottom of a small window. It may not cover a choice.
await page.setViewportSize({ width: 1366, height: 768 });
const top = (await button.boundingBox()).y;
for (const choice of await page.locator('.choice').all()) {
  const { y, height } = await choice.boundingBox();
  expect(y + height <= top, `the button covers "${await choice.innerText()}"`);
}
await page.setViewportSize({ width: 1400, height: 1000 });

for (const card of Object.keys(cards)) {
  for (const fault of Object.keys(faults)) {
    await page.locator(`input[value=${card}]`).check();
    await page.locator(`input[value=${fault}]`).check();
    await play(card, fault, () => button.click());
    await picture(`${fault}-${cards[card][0].slice(0, 3)}`);
    if (card === 'pm_card_visa' && fault === 'late') await documentationPicture();
  }
}

// The card that requires approval, in a small window: the dialog's buttons and Escape.
await page.setViewportSize({ width: 1280, height: 720 });
await page.locator('input[value=pm_card_threeDSecure2Required]').check();
await page.evaluate(() => scrollTo(0, 0));
const visible = async (of) => { const { y, height } = await of.boundingBox(); return y >= 0 && y + height <= 720; };
expect(await visible(button), 'the order button is not visible');
if (pictures) await page.screenshot({ path: `${pictures}/small-screen.png` });
const killed = { checks: 6, timeline: ['SIGKILL', 'started again', 'run 2 takes over'] }; // between requests
for (const [fault, wanted] of [['none', faults.none], ['killed', killed]]) {
  await page.locator(`input[value=${fault}]`).check();
  for (const [name, ending] of Object.entries(endings)) {
    await play('pm_card_threeDSecure2Required', fault, async () => {
      await button.click();
      await page.getByRole('dialog').waitFor();
      for (const each of await page.getByRole('dialog').getByRole('button').all()) {
        expect(await visible(each), `${await each.innerText()} is not visible`);
      }
      if (pictures) await page.screenshot({ path: `${pictures}/window-${fault}-${name}.png` });
      if (fault === 'none' && name === 'Approve') await accessible('dialog');
      if (fault === 'killed' && name === 'Decline') await page.keyboard.press('Escape');
      else await page.getByRole('dialog').getByRole('button', { name }).click();
      await page.getByRole('dialog').waitFor({ state: 'hidden' });
    }, ending, wanted);
    expect(!(await page.content()).includes('_secret_'), 'the page contains the client secret');
    await picture(`${fault}-${name}`);
  }
}
await page.setViewportSize({ width: 1400, height: 1000 });

// A reload shows the last scenario again.
await page.reload();
await page.locator('#checks li').first().waitFor();

// Keyboard only.
await page.locator('input[value=pm_card_visa]').focus();
await page.keyboard.press('Tab');
for (const next of ['repeat', 'concurrent', 'other', 'lost', 'killed']) {
  await page.keyboard.press('ArrowDown');
  expect(await page.evaluate(() => document.activeElement.value) === next, `the arrow key does not reach ${next}`);
}
expect(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle) !== 'none', 'the focus is not visible');
await play('pm_card_visa', 'killed', () => page.keyboard.press('Enter'));
await page.keyboard.press('Tab');
expect(await page.evaluate(() => document.activeElement.type) === 'submit', 'Tab does not move the focus to the button');

// From the last step of the row back to the first, with the buttons.
await page.keyboard.press('Tab');
expect(await page.evaluate(() => document.activeElement.id) === 'previous', 'Tab does not move the focus to the steps');
const [, total] = (await text('#step')).match(/of (\d+)/);
for (let step = Number(total); step > 0; step--) {
  const shown = await text('#step');
  expect(shown.startsWith(`Step ${step} of ${total}: `) && shown.includes('. Changed: '), `the step is not named: ${shown}`);
  expect(await page.locator('#timeline [aria-current=step]').count() === 1, `${shown}: not marked in the timeline`);
  const changed = await page.locator('#row tr:has(mark)').evaluateAll((rows) => rows.map((row) => row.innerText));
  expect(changed.length > 0 && changed.every((line) => line.includes('changed')), `${shown}: the marks are not named`);
  await page.keyboard.press('Enter');
}
await page.setViewportSize({ width: 1366, height: 768 });
expect(await page.evaluate(() => document.querySelector('#checks').getBoundingClientRect().bottom + scrollY <= 768), 'the checks of a kill are below a small window');
await page.setViewportSize({ width: 1400, height: 1000 });
expect((await text('#row tr:first-child')).includes('no row'), 'the first step has a row before');
await page.keyboard.press('Tab');
await page.keyboard.press('Enter');
expect((await text('#step')).startsWith('Step 2 of '), 'the button does not go to the next step');

for (const colorScheme of ['light', 'dark']) {
  await page.emulateMedia({ colorScheme });
  for (const width of [360, 768, 1366]) {
    await fits(width);
    await picture(`${colorScheme}-${width}`);
    if (pictures) await page.locator('#rows').screenshot({ path: `${pictures}/${colorScheme}-${width}-row.png` });
    if (pictures) await page.locator('#designs').screenshot({ path: `${pictures}/${colorScheme}-${width}-designs.png` });
    await accessible(`${colorScheme}, ${width} pixels`);
  }
}
await context.close();
for (const problem of problems) console.error(problem);
if (problems.length > 0) process.exit(1);
console.log('/console: all checks pass for 8 faults with an accepted and a declined card, 2 customer decisions, and the keyboard; axe-core finds no violation, light and dark, at 360, 768 and 1366 pixels');
