// Requests every example of the contract from Prism, see mock-check.sh.
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import { parse } from 'yaml';

const file = process.argv[2];
const contract = parse(readFileSync(file, 'utf8'));
const resolve = (node) =>
  node?.$ref ? resolve(node.$ref.slice(2).split('/').reduce((at, name) => at[name.replaceAll('~1', '/')], contract)) : node;

// Prism cannot choose a free port.
const port = await new Promise((done) => {
  const server = createServer().listen(0, '127.0.0.1', () => {
    const { port } = server.address();
    server.close(() => done(port));
  });
});
const prism = spawn(
  join(dirname(fileURLToPath(import.meta.url)), 'node_modules/.bin/prism'),
  ['mock', '--host', '127.0.0.1', '--port', String(port), file],
  { stdio: ['ignore', 'pipe', 'inherit'] },
);
process.on('exit', () => prism.kill());
await new Promise((ready, failed) => {
  prism.on('exit', (code) => failed(new Error(`Prism exited with ${code}`)));
  prism.stdout.on('data', (lines) => /listening/i.test(lines) && ready());
});

// examples returns pairs [name, value]. The name of a single example is null.
const examples = (content) =>
  content?.examples
    ? Object.entries(content.examples).map(([name, example]) => [name, resolve(example).value])
    : content?.example !== undefined ? [[null, content.example]] : [];

// send sends the operation's example, optionally with another body or Prefer.
async function send(path, method, operation, { body, code, example }) {
  const url = new URL(`http://127.0.0.1:${port}`);
  const headers = {};
  if (operation.security?.length !== 0) headers.authorization = 'Bearer ok_EXAMPLE';
  for (const parameter of (operation.parameters ?? []).map(resolve)) {
    const value = parameter.example ?? Object.values(parameter.examples ?? {}).map((e) => resolve(e).value)[0];
    if (parameter.in === 'path') path = path.replace(`{${parameter.name}}`, encodeURIComponent(value));
    if (parameter.in === 'header' && parameter.required) headers[parameter.name] = value;
    if (parameter.in === 'query' && value !== undefined) url.searchParams.set(parameter.name, value);
  }
  url.pathname = path;
  const preference = { code, example };
  if ((operation.parameters ?? []).map(resolve).some((p) => p.name.toLowerCase() === 'prefer')) {
    // The operation documents Prefer, so Prism gets its preference in the query.
    for (const [name, value] of Object.entries(preference)) if (value) url.searchParams.set(`__${name}`, value);
  } else if (code) {
    headers.prefer = Object.entries(preference).filter(([, value]) => value).map(([name, value]) => `${name}=${value}`).join(', ');
  }
  const json = resolve(operation.requestBody)?.content?.['application/json'];
  if (json) {
    headers['content-type'] = 'application/json';
    body ??= examples(json)[0][1];
  }
  const response = await fetch(url, { method, headers, body: body && JSON.stringify(body) });
  return { status: response.status, type: response.headers.get('content-type') ?? '', text: await response.text(), violations: response.headers.get('sl-violations') };
}

let sent = 0;
const faults = [];
const expect = (good, where, response) => {
  sent++;
  if (!good || response.violations) faults.push(`${where}: ${response.status} ${response.violations ?? response.text}`);
};
for (const [path, item] of Object.entries(contract.paths)) {
  for (const [method, operation] of Object.entries(item)) {
    const verb = method.toUpperCase();
    const where = `${verb} ${path}`;
    for (const [name, body] of examples(resolve(operation.requestBody)?.content?.['application/json'])) {
      const response = await send(path, verb, operation, { body });
      expect(response.status < 300, `${where}, request ${name}`, response);
    }
    for (const [code, reference] of Object.entries(operation.responses)) {
      if (code === 'default') continue; // no status
      const content = Object.entries(resolve(reference).content ?? { none: undefined });
      for (const [type, media] of content) {
        const wanted = type === 'none' ? [[null, undefined]] : examples(media);
        if (wanted.length === 0) faults.push(`${where} ${code}: no example`);
        for (const [example, value] of wanted) {
          const response = await send(path, verb, operation, { code, example });
          const same = typeof value === 'object' ? isDeepStrictEqual(JSON.parse(response.text), value) : response.text === (value ?? '');
          expect(String(response.status) === code && response.type.startsWith(type === 'none' ? '' : type) && same, `${where} ${code} ${example ?? ''}`, response);
        }
      }
    }
  }
}
for (const fault of faults) console.error(fault);
console.log(`${sent - faults.length} of ${sent} responses of Prism match the contract`);
process.exit(faults.length > 0 ? 1 : 0);
