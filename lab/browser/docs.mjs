// Tests /docs, see check.sh.
import { chromium } from 'playwright-core';

const [, , executablePath, url, key, folder] = process.argv;
const context = await chromium.launchPersistentContext(`${folder}/profile`, {
  executablePath,
  viewport: { width: 1400, height: 1000 },
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

// send presses "Send" and returns the response, whose status must be the expected one.
async function send(expected = 201) {
  const responded = page.waitForResponse((response) => response.request().method() === 'POST' && response.url().startsWith(`${url}/v1/orders`));
  await page.getByRole('button', { name: /^Send/ }).first().click();
  const response = await responded;
  if (response.status() !== expected) faults.push(`${response.url()} is ${response.status()} instead of ${expected}: ${await response.text()}`);
  await page.getByText(new RegExp(`^${response.status()} `)).first().waitFor();
  return { replayed: response.headers()['idempotent-replayed'], body: await response.json() };
}
const openRequest = (path = '') => page.getByRole('button', { name: new RegExp(`Test Request.*post /v1/orders${path}\\)`, 'is') }).first().click();
const close = () => page.getByRole('button', { name: 'Close Client' }).first().click();

// choose selects an example of the order's request.
async function choose(shown, example) {
  await page.getByRole('button', { name: shown }).first().click();
  await page.getByRole('option', { name: example }).first().click();
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
await token.fill(key);
await openRequest();
const [first, again] = [await send(), await send()];
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
  await page.locator('nav[aria-label="Operations"] a, aside a, aside button').filter({ hasText: /^(Refund|Refund an order.*)$/s, visible: true }).first().click();
  const operation = page.getByRole('heading', { name: 'Refund an order' });
  await page.waitForFunction((heading) => Math.abs(heading.getBoundingClientRect().top) < innerHeight, await operation.elementHandle());
  await page.locator('pre', { hasText: '/refunds -H' }).first().waitFor();
}
await page.setViewportSize({ width: 1400, height: 1000 });

// With the URL that playground run prints, the API key is filled in. The page itself stores the
// key that was typed above, which would hide a missing one.
await page.evaluate(() => { localStorage.clear(); sessionStorage.clear(); });
await page.goto(process.env.DOCS_URL);
if (page.url() !== `${url}/docs`) faults.push('the token is still in the URL');
await openRequest();
if ((await send()).replayed !== 'true') faults.push('the filled-in API key belongs to another account');

await context.close();
for (const fault of faults) console.error(fault);
if (faults.length > 0) process.exit(1);
console.log('/docs: an order, its replay, a decline, a refund and a cancel were sent without an edited key; the printed URL fills in the API key');
