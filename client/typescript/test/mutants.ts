// Removes one rule of the client at a time, and requires that its tests fail.
import { spawn } from 'node:child_process';
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';

const mutants: [rule: string, code: string, replacement: string][] = [
  ['all attempts have the same key', "'Idempotency-Key': key", "'Idempotency-Key': crypto.randomUUID()"],
  ['all attempts have the same bytes', "method: 'POST', body", "method: 'POST', body: body + ' '"],
  ['redirects are not followed', "redirect: 'manual'", "redirect: 'follow'"],
  ['no response: the same key', 'last = String(', "return { kind: 'refused', problem: { retry: 'new-key' } }; last = String("],
  ['only one status is success', 'response.status === success', 'response.status < 300'],
  ['the success of a cancel is 200', ', success: 200 }', ' }'],
  ['only JSON is success', "mediaType === 'application/json'", 'true'],
  ['a success is an object', 'if (!isObject(value))', 'if (value === undefined)'],
  ['only a problem document is a rejection', "mediaType !== 'application/problem+json'", 'false'],
  ['an unknown verdict: the same key', 'default:\n            return undefined', "default:\n            return { kind: 'never', problem }"],
  ['an action is a result', 'response.status === 202', 'false'],
  ['202 without an action is no result', 'isObject(status.action)', 'true'],
  ['only respond-async ends with 202', 'respondAsync && ', ''],
  ['preferences are sent', 'Prefer: ', "'X-Prefer': "],
  ['a rejected read is final', 'request.key &&', ''],
  ['the address of a key is not decoded', "!key.startsWith('~')", 'true'],
  ['a rejection does not resolve earlier attempts', 'attempts > 1 &&', 'false &&'],
  ['a stored failure resolves earlier attempts', "result.problem.retry !== 'new-key'", 'true'],
  ['a final outcome resolves earlier attempts', "&& result.problem.outcome !== 'final'", ''],
  ['Retry-After is obeyed', 'wait + retryAfter(response.headers)', 'wait'],
  ['the wait has jitter', 'random() *', ''],
  ['the jitter doubles', '2 ** attempts', '1'],
  ['the jitter has a maximum', ', maxBackoffMs)', ')'],
  ['a wait is not too long for setTimeout', 'retryAfter(response.headers), maxTimer)', 'retryAfter(response.headers))'],
  ['an abort ends the call', '|| signal?.aborted) {', ') {'],
  ['an abort ends the attempt', "signal?.addEventListener('abort', abort)", ''],
  ['an abort ends the wait', 'undefined, { signal })', 'undefined)'],
  ['an attempt has a time limit', 'Math.min(timeoutMs, ', 'Math.min('],
  ['no attempt after the deadline', 'Date.now() + wait >= deadline', 'false'],
  ['the response has a limit', 'text.length > maxResponse', 'false'],
  ['the client secret is hidden', "client_secret: '[hidden]'", ''],
  ['the client secret is passed on', 'Object.defineProperty(', "Object.defineProperty(value['action'], 'client_secret', { enumerable: false }); Object.defineProperty("],
  ['an event is signed', 'if (!valid.some(', 'if (false && !valid.some('],
  ['any secret suffices', 'secrets.map(', 'secrets.slice(0, 1).map('],
  ['any signature suffices', ".split(' ');\n    if (!valid", ".split(' ').slice(-1);\n    if (!valid"],
  ['an event is not old', '> eventTolerance', '> Infinity'],
  ['an event is not from the future', 'Math.abs(now - ', '(now - '],
];

const build = new URL('..', import.meta.url);
const source = readFileSync(new URL('orders.js', build), 'utf8');

// detected reports whether the tests fail with the changed client.
async function detected(code: string, replacement: string, number: number): Promise<boolean> {
  const mutant = source.replace(code, () => replacement);
  if (mutant === source) throw new Error(`orders.js does not contain ${code}`);
  const copy = new URL(`../../mutant${number}/`, import.meta.url);
  cpSync(build, copy, { recursive: true });
  writeFileSync(new URL('orders.js', copy), mutant);
  const tests = spawn(process.execPath, [new URL('test/orders.test.js', copy).pathname], {
    env: { ...process.env, END_ON_FAILURE: '1' }, stdio: 'ignore', timeout: 120_000,
  });
  const status = await new Promise((resolve) => tests.on('close', resolve));
  rmSync(copy, { recursive: true });
  return status !== 0;
}

const survivors: string[] = [];
const queue = [...mutants.entries()];
await Promise.all([1, 2, 3, 4].map(async () => {
  for (let next = queue.shift(); next; next = queue.shift()) {
    const [number, [rule, code, replacement]] = next;
    if (!await detected(code, replacement, number)) survivors.push(rule);
  }
}));
for (const rule of survivors) console.error(`no test fails without the rule: ${rule}`);
console.log(`${mutants.length - survivors.length} of ${mutants.length} mutants of the TypeScript client are detected`);
process.exitCode = survivors.length ? 1 : 0;
