// Tests /docs, see check.sh.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

const [, , executablePath, url, key, folder, pictures] = process.argv;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const context = await chromium.launchPersistentContext(`${folder}/profile`, {
  executablePath,
  viewport: { width: 390, height: 844 },
  args: [
    '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync',
  ],
});
const faults = [];
context.setDefaultTimeout(180_000); // costs nothing unless the machine is busy
context.on('request', (request) => {
  const to = new URL(request.url());
  if (to.origin !== url && !['data:', 'blob:'].includes(to.protocol)) faults.push(`calls ${to.origin}`);
});
context.on('console', (message) => {
  if (message.type() === 'error' && !/status of 402/.test(message.text())) faults.push(`console: ${message.text()}`);
});

const page = context.pages()[0] ?? (await context.newPage());

const picture = async (name) => { if (pictures) await page.screenshot({ path: `${pictures}/docs-${name}.png` }); };

// send presses "Send" and returns the response, whose status must be the expected one. Status and body
// must be in view, below nothing else.
async function send(expected = 201) {
  const responded = page.waitForResponse((response) => response.request().method() === 'POST' && response.url().startsWith(`${url}/v1/orders`));
  await page.getByRole('button', { name: /^Send/ }).first().click();
  const response = await responded;
  const what = `POST ${new URL(response.url()).pathname}`;
  if (response.status() !== expected) faults.push(`${what} is ${response.status()} instead of ${expected}: ${await response.text()}`);
  const section = page.locator('section[aria-label="Response"]');
  const visible = (element) => {
    const { left, top, bottom } = element.getBoundingClientRect();
    return [top + 2, bottom - 2].every((y) => element.contains(document.elementFromPoint(left + 5, y)));
  };
  for (const [name, shown] of Object.entries({
    status: section.getByText(new RegExp(`^${response.status()} `)).first(),
    body: section.locator('.response-section-content-body .cm-line').nth(2),
  })) {
    await page.waitForFunction(visible, await shown.elementHandle(), { timeout: 10_000 }).catch(() => faults.push(`after ${what}, the ${name} of the ${expected} is not in view`));
  }
  if (await section.evaluate((element) => element.getBoundingClientRect().right > innerWidth)) faults.push(`after ${what}, the response is wider than the page`);
  const { 'idempotency-key': used } = response.request().headers();
  return { key: used, replayed: response.headers()['idempotent-replayed'], body: await response.json() };
}
const openRequest = (path = '') => page.getByRole('button', { name: new RegExp(`Test Request.*post /v1/orders${path}\\)`, 'is') }).first().click();
const close = () => page.getByRole('button', { name: 'Close Client' }).first().click();

// choose selects an example of the order's request.
async function choose(shown, example) {
  await page.getByRole('button', { name: shown }).first().click();
  await page.getByRole('option', { name: example }).first().click();
}

// readable checks that the page's own header and menu have enough contrast.
async function readable(where) {
  const session = await context.newCDPSession(page);
  const { frameTree } = await session.send('Page.getFrameTree');
  // The debugger loads axe-core in an isolated world, so the page's CSP stays enabled.
  const world = await session.send('Page.createIsolatedWorld', { frameId: frameTree.frame.id });
  const run = (expression) => session.send('Runtime.evaluate', {
    expression, contextId: world.executionContextId, awaitPromise: true, returnByValue: true,
  });
  await run(axe);
  const { result } = await run(`axe.run({ include: [['body > header'], ['body > nav']] }, { runOnly: ['color-contrast'] })
    .then(({ violations, incomplete, passes }) => ({ passes: passes.length, unreadable: [...violations, ...incomplete].flatMap((v) => v.nodes.map((n) => n.html)) }))`);
  if (!(result.value?.passes > 0)) faults.push(`${where}: axe-core did not run`);
  for (const html of result.value?.unreadable ?? []) faults.push(`${where}: too little contrast: ${html}`);
  await session.detach();
}

// setOrder replaces the order's id in the open request.
async function setOrder(id) {
  await page.waitForTimeout(500); // Scalar fills the form again after it is open
  await page.getByRole('dialog').getByRole('textbox').filter({ hasText: /^[0-9a-f-]{36}$/ }).first().click();
  await page.keyboard.press('ControlOrMeta+A');
  await page.keyboard.type(id);
  await page.waitForTimeout(1000); // Scalar takes a change over after a pause, and shows nothing then
}

await page.goto(`${url}/docs`);
const token = page.locator('input[placeholder=Token]:visible').first();
if (await token.inputValue()) faults.push('the page contains the API key without the cookie');
if (!(await page.getByText('To send requests, open the link').isVisible())) faults.push('the page does not name the link that fills in the API key');
await token.fill(key);
await openRequest();
const first = await send();
await picture('390-response');
const again = await send();
if (first.replayed !== undefined || again.replayed !== 'true') faults.push(`replayed: ${first.replayed}, ${again.replayed}`);
await close();

// Only ids are edited, never a key.
await choose('Two items, with metadata', 'A card that is declined');
await openRequest();
await send(402);
await close();
await openRequest('/.id./refunds');
await setOrder(first.body.id);
await send();
await close();
await choose('A card that is declined', 'The customer must approve');
await openRequest();
const waiting = await send(202);
await close();
await openRequest('/.id./cancel');
await setOrder(waiting.body.order.id);
await send(200);
await close();

// At both widths: tables keep names whole, nothing is wider than the page, a sample is visible,
// and one press on the first screen leads to an operation.
for (const width of [1366, 390]) {
  await page.setViewportSize({ width, height: 800 });
  await page.goto(`${url}/docs`);
  await page.locator('td').first().waitFor();
  const { broken, wide } = await page.evaluate(() => {
    const broken = [];
    for (const cell of document.querySelectorAll('td, th')) {
      const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
      while (texts.nextNode()) {
        for (const word of texts.currentNode.data.matchAll(/\S+/g)) {
          const range = document.createRange();
          range.setStart(texts.currentNode, word.index);
          range.setEnd(texts.currentNode, word.index + word[0].length);
          if (new Set([...range.getClientRects()].map(({ top }) => Math.round(top))).size > 1) broken.push(word[0]);
        }
      }
    }
    return { broken, wide: document.documentElement.scrollWidth > innerWidth };
  });
  if (broken.length > 0) faults.push(`at ${width} pixels a table breaks inside ${broken.join(', ')}`);
  if (wide) faults.push(`/docs is wider than ${width} pixels`);
  if (await page.getByText('Client Libraries').count()) faults.push('/docs shows generated clients');
  for (const colorScheme of ['dark', 'light']) {
    await page.emulateMedia({ colorScheme });
    await page.locator(`body.${colorScheme}-mode`).waitFor();
    await readable(`${width} pixels, ${colorScheme}`);
    await picture(`${width}-${colorScheme}`);
  }
  await page.locator('nav[aria-label="Operations"] a, aside a, aside button').filter({ hasText: /^(Refund|Refund an order.*)$/s, visible: true }).first().click();
  const operation = page.getByRole('heading', { name: 'Refund an order' });
  await page.waitForFunction((heading) => Math.abs(heading.getBoundingClientRect().top) < innerHeight, await operation.elementHandle());
  await page.locator('pre', { hasText: '/refunds -H' }).first().waitFor();
}
await page.setViewportSize({ width: 1400, height: 1000 });

// With the URL that playground run prints, the API key is filled in. The page itself stores the
// key that was typed above, which would hide a missing one. Each visit has its own keys.
await page.evaluate(() => { localStorage.clear(); sessionStorage.clear(); });
await page.goto(process.env.DOCS_URL);
if (page.url() !== `${url}/docs`) faults.push('the token is still in the URL');
if (await page.getByText('To send requests, open the link').isVisible()) faults.push('the page names the link that was opened');
await openRequest();
const next = await send();
if (next.replayed !== undefined || next.key === first.key) faults.push('two visits have the same key');
await close();
const read = await fetch(`${url}/v1/orders/${next.body.id}`, { headers: { authorization: `Bearer ${key}` } });
if (!read.ok) faults.push('the filled-in API key belongs to another account');

// The sample has the page's address and keys, so in a shell it repeats the request that was sent.
const sample = await page.locator('pre', { hasText: '"pm_card_visa"' }).first().innerText();
const printed = execFileSync('sh', ['-c', sample.replace('curl ', 'curl --silent --show-error --include ')], { encoding: 'utf8' });
if (!/^idempotent-replayed: true/im.test(printed)) faults.push(`the sample repeats no request:\n${sample}\n${printed}`);

await context.close();
for (const fault of faults) console.error(fault);
if (faults.length > 0) process.exit(1);
console.log('/docs: an order, its replay, a decline, a refund and a cancel were sent without an edited key at 390 pixels, with the response in view; the printed URL fills in the API key; the sample repeats the request');
