import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { format, inspect } from 'node:util';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { EventRejected, newKey, Orders, verifyEvent } from '../orders.js';
import type { Config, OrderParams } from '../orders.js';
import { cards, fakeWorld } from './fake.js';
import { FaultyServer, foreign, problem } from './faults.js';
import type { Reply } from './faults.js';
import { buy, purchases } from './purchase.js';

const server = new FaultyServer();
let url = '';
before(async () => { url = await server.start(); });
after(() => server.stop());

// A failure prints a seed and a path. Pass both to fc.assert to repeat the failure.
test('a purchase is charged once, with one key', async () => {
  await fc.assert(fc.asyncProperty(purchases(cards), (plan) => buy(server, url, 'k', 250, fakeWorld(), plan)), { numRuns: 200, endOnFailure: process.env.END_ON_FAILURE === '1' });
});

const key = '2f1cdb0e-8a0f-4b0e-9d3c-6f6a2f3f9f10';
const params: OrderParams = { email: 'ada@example.com', currency: 'usd', payment_method: 'paid', items: [{ sku: 'tea', quantity: 2, unit_amount: 1250 }] };
const busy = (retryAfter: string, headers = {}): Reply => problem(503, 'payment-outcome-unknown', 'same-key', {}, { 'retry-after': retryAfter, ...headers });

// client returns a client of a server that first sends these responses, and the list of the client's
// waits.
function client(replies: Reply[], more: Partial<Config> = {}) {
  const waits: number[] = [];
  const { api } = fakeWorld();
  server.calls = [];
  server.plan = [];
  server.api = async (call) => replies.shift() ?? api(call);
  const config = { baseUrl: `${url}/`, apiKey: 'api-key', random: () => 0, sleep: async (ms: number) => void waits.push(ms), ...more };
  return { orders: new Orders(config), waits };
}

test('Retry-After', async () => {
  const longest = 2 ** 31 - 1; // the longest delay of setTimeout
  const date = 'Fri, 20 Nov 2026 09:30:00 GMT';
  for (const [value, want] of [
    ['0', 0], ['1', 1000], ['007', 7000], ['99999999999', longest], ['9'.repeat(400), longest], ['-1', 0], ['+1', 0], ['1.5', 0], ['1, 2', 0], ['soon', 0], ['soon GMT', 0],
    ['Fri, 20 Nov 2026 09:30:13 GMT', 13_000], ['Fri, 20 Nov 2026 09:29:13 GMT', 0], ['Fri, 20 Nov 2099 09:30:00 GMT', longest],
  ] as const) {
    const { orders, waits } = client([busy(value, { date })]);
    assert.equal((await orders.createOrder(key, params)).kind, 'created', value);
    assert.deepEqual(waits, [want], value);
  }
});

test('the attempt has a time limit, even while garbage is collected', { timeout: 20_000 }, async (t) => {
  setFlagsFromString('--expose-gc');
  const collector = setInterval(runInNewContext('gc'), 20);
  t.after(() => clearInterval(collector));
  server.plan = [];
  const errors: unknown[] = [];
  const { orders } = client([], { timeoutMs: 200, observe: ({ error }) => void errors.push(error) });
  server.plan = ['never a response'];
  assert.equal((await orders.createOrder(key, params)).kind, 'created');
  assert.match(String(errors[0]), /timeout/);
});

test('a deadline before the end of the wait', async () => {
  const { orders, waits } = client([busy('2')]);
  const result = await orders.createOrder(key, params, { deadline: Date.now() + 1000 });
  assert.deepEqual(result, { kind: 'unknown', attempts: 1, detail: 'the deadline is before the next attempt (last: status 503, 102 characters)' });
  assert.deepEqual(waits, []);
});

test('a deadline in the past', async () => {
  const { orders } = client([]);
  const result = await orders.createOrder(key, params, { deadline: Date.now() });
  assert.equal(result.kind === 'unknown' && result.attempts, 0);
  assert.equal(server.calls.length, 0);
});

test('a deadline during an attempt', async () => {
  const { orders } = client([]);
  server.plan = ['never a response'];
  const result = await orders.createOrder(key, params, { deadline: Date.now() + 200 });
  assert.equal(result.kind === 'unknown' && result.attempts, 1);
});

test('an abort during an attempt, and during a wait', { timeout: 20_000 }, async () => {
  const controller = new AbortController();
  const { orders } = client([]);
  server.plan = ['never a response'];
  server.api = async () => (controller.abort(), busy('1'));
  const result = await orders.createOrder(key, params, { signal: controller.signal });
  assert.equal(result.kind === 'unknown' && result.attempts, 1);
  assert.ok(!inspect(result).includes(key));

  const waiting = new AbortController();
  const real = new Orders({ baseUrl: url, apiKey: 'k', observe: () => void setTimeout(() => waiting.abort(), 10) });
  server.api = async () => busy('600');
  assert.equal((await real.createOrder(key, params, { signal: waiting.signal })).kind, 'unknown');
});

test('headers', async () => {
  const { orders } = client([]);
  await orders.createOrder(key, params);
  const [call] = server.calls;
  assert.equal(call?.key, key);
  assert.equal(call?.headers.authorization, 'Bearer api-key');
  assert.equal(call?.headers['content-type'], 'application/json');
});

test('nothing is sent with invalid arguments', async () => {
  const { orders } = client([]);
  for (const bad of ['', 'too-short', 'with a blank in it', 'with-a-line-break\n', '0'.repeat(256), 'schlüssel-schlüssel', '"0123456789abcdef"']) {
    await assert.rejects(orders.createOrder(bad, params), TypeError, bad);
  }
  for (const id of ['', '..', 'a/b']) {
    await assert.rejects(orders.cancelOrder(key, id), TypeError, id);
  }
  await assert.rejects(orders.send({ key, path: '@example.com/', body: '{}' }), TypeError);
  assert.equal(server.calls.length, 0);
  for (const bad of [{ baseUrl: 'ftp://a' }, { baseUrl: 'http://a?b' }, { baseUrl: 'http://a#' }, { baseUrl: 'http://a:b@c' }, { baseUrl: 'http://[' }, { apiKey: '' }, { apiKey: 'a\nb' }, { apiKey: '€' }, { timeoutMs: 0 }, { timeoutMs: 2 ** 31 }, { backoffMs: -1 }]) {
    assert.throws(() => new Orders({ baseUrl: url, apiKey: 'k', ...bad }), TypeError, JSON.stringify(bad));
  }
});

test('a problem after a lost response', async () => {
  for (const [slug, retry, outcome, kind] of [
    ['idempotency-key-expired', 'never', 'final', 'expired'], ['idempotency-key-expired', 'never', 'unknown', 'unknown'],
    ['idempotency-key-expired', 'never', 'unheard-of', 'unknown'], ['payment-declined', 'new-key', 'unheard-of', 'declined'],
  ] as const) {
    const { orders } = client([busy('1'), problem(422, slug, retry, { outcome })]);
    const result = await orders.createOrder(key, params);
    assert.equal(result.kind, kind, `${slug} ${outcome}`);
    assert.equal(result.problem?.retry, retry);
  }
});

test('kinds of a problem', async () => {
  for (const [slug, retry, kind] of [
    ['payment-declined', 'new-key', 'declined'], ['payment-refused', 'new-key', 'refused'], ['validation-failed', 'corrected', 'corrected'],
    ['idempotency-key-reused', 'never', 'reused'], ['idempotency-key-expired', 'never', 'expired'], ['not-found', 'never', 'never'],
  ] as const) {
    const { orders } = client([problem(422, slug, retry)]);
    const result = await orders.createOrder(key, params);
    assert.equal(result.kind, kind);
    assert.equal(result.problem?.retry, retry);
  }
});

test('an attempt is one request', async () => {
  const attempts: unknown[] = [];
  const { orders } = client([], { observe: (attempt) => void attempts.push(attempt) });
  await orders.createOrder(key, params); // the next attempt reuses this connection
  server.plan = ['no response', 'redirect to a page, after', 'redirect, after'];
  assert.equal((await orders.createOrder(key, params)).kind, 'created');
  assert.equal(attempts.length, 5);
  assert.deepEqual(server.calls.map(({ method, path }) => `${method} ${path}`), attempts.map(() => 'POST /v1/orders'));
});

test('a secret is passed on, and no log shows it', async () => {
  const { orders } = client([]);
  const result = await orders.createOrder(key, { ...params, payment_method: 'action' });
  assert.ok(result.kind === 'action-required');
  const action = { type: 'use_stripe_sdk', client_secret: 'a secret', payment_intent_id: key };
  for (const passedOn of [JSON.parse(JSON.stringify(result.action)), { ...result.action }, structuredClone(result.action)]) {
    assert.deepEqual(passedOn, action);
  }
  assert.match(inspect(result, { depth: 9 }), /use_stripe_sdk/);
  assert.doesNotMatch(inspect(result, { depth: 9 }) + format('%o %O', result, result.action), /a secret/);
  assert.ok(!(inspect(orders, { depth: 9 }) + JSON.stringify(orders)).includes('api-key'));
});

test('keys are random', () => {
  assert.match(newKey(), /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.notEqual(newKey(), newKey());
});

const json = (status: number, body: string): Reply => ({ status, headers: { 'content-type': 'application/json' }, body });

test('the success of a cancel is 200, and that of an order 201', async () => {
  const canceled = { id: 'o1', status: 'payment_failed' };
  const { orders } = client([json(201, '{"id":"o1"}'), json(200, JSON.stringify(canceled))]);
  assert.deepEqual(await orders.cancelOrder(key, 'o1'), { kind: 'done', value: canceled, replayed: false });
  assert.deepEqual(server.calls.map((call) => [call.method, call.path, call.key, call.body]), Array(2).fill(['POST', '/v1/orders/o1/cancel', key, '{}']));

  const { orders: others } = client([json(200, '{"id":"o1"}')]);
  assert.equal((await others.createOrder(key, params)).kind, 'created');
  assert.equal(server.calls.length, 2);
});

test('a read has neither key nor body, and its rejection is final', async () => {
  const order = { id: 'o1', status: 'paid' };
  const { orders } = client([json(200, JSON.stringify(order)), problem(404, 'not-found', 'never')]);
  server.plan = ['no request'];
  assert.deepEqual(await orders.getOrder('o1'), { kind: 'done', value: order, replayed: false });
  server.plan = ['no request'];
  assert.equal((await orders.getOrder('o2')).kind, 'never');
  for (const { method, path, key, body, headers } of server.calls) {
    assert.deepEqual([method, path.slice(0, -1), key, body, headers.prefer, headers['content-type']], ['GET', '/v1/orders/o', '', '', undefined, undefined]);
  }
});

test('addresses of reads', async () => {
  for (const [call, want] of [
    [(orders) => orders.listOrders(), '/v1/orders'],
    [(orders) => orders.listOrders({ limit: 2, after: 'o1', reference: 'basket #17' }), '/v1/orders?limit=2&after=o1&reference=basket+%2317'],
    [(orders) => orders.getKey(key), `/v1/idempotency-keys/${key}`],
    [(orders) => orders.getKey('a/key#20%-0123456'), '/v1/idempotency-keys/~YS9rZXkjMjAlLTAxMjM0NTY'],
    [(orders) => orders.getKey('~a-key-with-a-tilde'), '/v1/idempotency-keys/~fmEta2V5LXdpdGgtYS10aWxkZQ'],
  ] as [(orders: Orders) => Promise<{ kind: string }>, string][]) {
    const { orders } = client([json(200, '{}')]);
    assert.equal((await call(orders)).kind, 'done');
    assert.equal(server.calls[0]?.path, want);
  }
});

test('a server that is not the API neither holds a call longer than its limit, nor answers it', async () => {
  for (const name of foreign) {
    const { orders } = client([], { timeoutMs: 200 });
    server.plan = [name];
    const [begun, before] = [performance.now(), process.memoryUsage().rss];
    assert.equal((await orders.createOrder(key, params)).kind, 'created', name);
    assert.equal(server.calls.length, 2, name);
    assert.ok(performance.now() - begun < 5000, name);
    assert.ok(process.memoryUsage().rss - before < 100 << 20, name);
  }
});

test('a response that is too large counts as none', async () => {
  const { orders } = client([]);
  server.plan = ['too large'];
  assert.equal((await orders.createOrder(key, params)).kind, 'created');
  assert.equal(server.calls.length, 2);
});

test('preferences', async () => {
  const accepted = json(202, JSON.stringify({ key, state: 'in_progress', action: null }));
  const { orders } = client([json(202, '{}'), accepted, accepted]);
  const result = await orders.createOrder(key, params, { prefer: ['respond-async', 'wait=10'] });
  assert.deepEqual(result, { kind: 'accepted', status: { key, state: 'in_progress', action: null } });
  assert.deepEqual(server.calls.map(({ headers }) => headers.prefer), Array(2).fill('respond-async, wait=10'));
  assert.equal((await orders.createOrder(key, params, { prefer: ['wait=10'] })).kind, 'created');
  assert.equal(server.calls.length, 4);
});

// Two requests whose signatures are published for implementations of Standard Webhooks.
const published = {
  secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw', id: 'msg_p5jXN8AQM9LWM0D4loKWxJek', sent: 1614265330,
  body: '{"test": 2432232314}', signature: 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
};
const otherPublished = {
  secret: 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD', id: 'msg_27UH4WbU6Z5A5EzD8u03UvzRbpk', sent: 1649367553,
  body: '{"email":"test@example.com","username":"test_user"}', signature: 'v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=',
};
const headersOf = ({ id, sent, signature }: typeof published) =>
  ({ 'webhook-id': id, 'webhook-timestamp': String(sent), 'webhook-signature': signature });

test('an event is verified', () => {
  for (const one of [published, otherPublished]) {
    for (const headers of [headersOf(one), new Headers(headersOf(one))]) {
      for (const body of [one.body, new TextEncoder().encode(one.body)]) {
        assert.deepEqual(verifyEvent([one.secret], headers, body, one.sent * 1000), { ...JSON.parse(one.body), id: one.id });
      }
    }
  }
  const { secret, sent, body, signature } = published;
  verifyEvent([otherPublished.secret, secret], headersOf(published), body, sent * 1000); // the shop has two secrets
  const two = { ...published, signature: `v1a,unknown v1,AAAA ${signature} ${otherPublished.signature}` };
  verifyEvent([secret], headersOf(two), body, sent * 1000); // the API signs with two secrets
});

test('the signature in the contract is verified', () => {
  const contract = readFileSync('../../openapi.yaml', 'utf8');
  const find = (pattern: RegExp) => pattern.exec(contract)?.[1] ?? assert.fail(String(pattern));
  const example = (name: string) => find(new RegExp(`name: ${name}\\n[^]*?\\n      example: '?([^'\\n]+)`));
  const [id, sent, signature] = [example('webhook-id'), Number(example('webhook-timestamp')), example('webhook-signature')];
  const headers = headersOf({ ...published, id, sent, signature });
  const body = find(/\n {12}(\{"id":"[^\n]+\})\n/);
  assert.equal(verifyEvent([find(/`(whsec_[^`]+)`\n/)], headers, body, sent * 1000).type, 'order.paid');
  assert.throws(() => verifyEvent([published.secret], headers, body, sent * 1000), EventRejected);
});

test('an event is rejected', () => {
  const { secret, sent, body, signature } = published;
  for (const [what, changed, secrets = [secret]] of [
    ['other secret', {}, [otherPublished.secret]], ['no secret', {}, []],
    ['other body', { body: body.replace(' ', '') }], ['other id', { id: 'msg_2' }], ['later time', { sent: sent + 1 }],
    ['no signature', { signature: '' }], ['signature without a scheme', { signature: signature.slice(3) }],
    ['other scheme', { signature: `v2,${signature.slice(3)}` }], ['shorter signature', { signature: signature.slice(0, 20) }],
    ['time that is not a number', { sent: NaN }],
  ] as [string, Partial<typeof published>, string[]?][]) {
    const one = { ...published, ...changed };
    assert.throws(() => verifyEvent(secrets, headersOf(one), one.body, sent * 1000), EventRejected, what);
  }
  assert.throws(() => verifyEvent([secret], {}, body, sent * 1000), EventRejected, 'no headers');
  for (const [seconds, accepted] of [[300, true], [-300, true], [301, false], [-301, false]] as const) {
    const verify = () => verifyEvent([secret], headersOf(published), body, (sent + seconds) * 1000);
    if (accepted) verify();
    else assert.throws(verify, EventRejected, String(seconds));
  }
  for (const invalid of ['whsec_CANARY!', 'whsec_', '']) {
    assert.throws(() => verifyEvent([invalid], headersOf(published), body, sent * 1000), { name: 'TypeError', message: 'a signing secret is not in base64' });
  }
});
