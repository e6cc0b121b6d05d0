// Asks Prism for every example of the contract, see mock-check.sh.
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

// Prism listens where it is told; ask the system for a free port.
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
  prism.on('exit', (code) => failed(new Error(`Prism ended with ${code}`)));
  prism.stdout.on('data', (lines) => /listening/i.test(lines) && ready());
});

// examples returns [name, value], name being null for the only one.
const examples = (content) =>
  content?.examples
    ? Object.entries(content.examples).map(([name, example]) => [name, resolve(example).value])
    : content?.example !== undefined ? [[null, content.example]] : [];

// ask sends the operation's example, with another body or for another answer.
async function ask(path, method, operation, { body, code, example }) {
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
  const wish = { code, example };
  if ((operation.parameters ?? []).map(resolve).some((p) => p.name.toLowerCase() === 'prefer')) {
    // Prefer is the operation's own here, so Prism hears it another way.
    for (const [name, value] of Object.entries(wish)) if (value) url.searchParams.set(`__${name}`, value);
  } else if (code) {
    headers.prefer = Object.entries(wish).filter(([, value]) => value).map(([name, value]) => `${name}=${value}`).join(', ');
  }
  const json = resolve(operation.requestBody)?.content?.['application/json'];
  if (json) {
    headers['content-type'] = 'application/json';
    body ??= examples(json)[0][1];
  }
  const answer = await fetch(url, { method, headers, body: body && JSON.stringify(body) });
  return { status: answer.status, type: answer.headers.get('content-type') ?? '', text: await answer.text(), violations: answer.headers.get('sl-violations') };
}

let asked = 0;
const faults = [];
const expect = (good, where, answer) => {
  asked++;
  if (!good || answer.violations) faults.push(`${where}: ${answer.status} ${answer.violations ?? answer.text}`);
};
for (const [path, item] of Object.entries(contract.paths)) {
  for (const [method, operation] of Object.entries(item)) {
    const verb = method.toUpperCase();
    const where = `${verb} ${path}`;
    for (const [name, body] of examples(resolve(operation.requestBody)?.content?.['application/json'])) {
      const answer = await ask(path, verb, operation, { body });
      expect(answer.status < 300, `${where}, request ${name}`, answer);
    }
    for (const [code, reference] of Object.entries(operation.responses)) {
      if (code === 'default') continue; // it stands for statuses, and is none
      const content = Object.entries(resolve(reference).content ?? { none: undefined });
      for (const [type, media] of content) {
        const wanted = type === 'none' ? [[null, undefined]] : examples(media);
        if (wanted.length === 0) faults.push(`${where} ${code}: no example`);
        for (const [example, value] of wanted) {
          const answer = await ask(path, verb, operation, { code, example });
          const same = typeof value === 'object' ? isDeepStrictEqual(JSON.parse(answer.text), value) : answer.text === (value ?? '');
          expect(String(answer.status) === code && answer.type.startsWith(type === 'none' ? '' : type) && same, `${where} ${code} ${example ?? ''}`, answer);
        }
      }
    }
  }
}
for (const fault of faults) console.error(fault);
console.log(`Prism answered ${asked - faults.length} of ${asked} questions as the contract says`);
process.exit(faults.length > 0 ? 1 : 0);
