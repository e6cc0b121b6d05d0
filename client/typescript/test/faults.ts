// A server that applies faults to the responses of an API.
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';

export interface Call {
  method: string;
  path: string;
  key: string;
  headers: Record<string, string>;
  body: string;
}
export interface Reply {
  status: number;
  headers: Record<string, string>;
  body: string;
}
export type API = (call: Call) => Promise<Reply>;

const problemType = 'application/problem+json';

export function problem(status: number, slug: string, retry: unknown, more: object = {}, headers: Record<string, string> = {}): Reply {
  const body = { type: `/problems/${slug}`, title: 'T', status, detail: 'D.', retry, ...more };
  return { status, headers: { 'content-type': problemType, ...headers }, body: JSON.stringify(body) };
}

const html = (status: number): Reply => ({ status, headers: { 'content-type': 'text/html' }, body: '<h1>Bad Gateway</h1>' });

// rejections replace the API's response. The API does not get the request ("before"), or has already
// executed it ("after").
const rejections: Record<string, () => Reply> = {
  '409': () => problem(409, 'idempotency-key-in-progress', 'same-key', { outcome: 'unknown' }, { 'retry-after': '1' }),
  '429': () => problem(429, 'rate-limited', 'same-key', { outcome: 'none' }, {
    date: 'Fri, 20 Nov 2026 09:30:00 GMT', 'retry-after': 'Fri, 20 Nov 2026 09:30:07 GMT',
  }),
  '500': () => problem(500, 'internal-error', 'same-key', { outcome: 'unknown' }),
  '503': () => problem(503, 'payment-outcome-unknown', 'same-key', { outcome: 'unknown' }, { 'retry-after': '2' }),
  '401 of the API': () => problem(401, 'unauthorized', 'corrected', { outcome: 'unknown' }),
  '404 of the API': () => problem(404, 'not-found', 'never', { outcome: 'none' }),
  'problem without retry': () => problem(402, 'payment-declined', undefined),
  'unknown retry': () => problem(400, 'malformed-request', 'later'),
  'numeric retry': () => problem(402, 'payment-declined', 1),
  'JSON of a firewall': () => ({ ...problem(403, 'forbidden', 'new-key'), headers: { 'content-type': 'application/json' } }),
  'page of a portal': () => html(200),
  'JSON in HTML with 201': () => ({ ...html(201), body: '{"id":"o1","status":"paid","padding":""}' }),
  'HTML with 502': () => html(502),
  'JSON with 200': () => ({ status: 200, headers: { 'content-type': 'application/json' }, body: '{"id":"o1"}' }),
  'empty 201': () => ({ status: 201, headers: { 'content-type': 'application/json' }, body: '' }),
  'null with 201': () => ({ status: 201, headers: { 'content-type': 'application/json' }, body: 'null' }),
  '202 in progress': () => ({ status: 202, headers: { 'content-type': 'application/json' }, body: '{"state":"in_progress","action":null}' }),
  'redirect to a page': () => ({ status: 302, headers: { location: '/elsewhere' }, body: '' }),
  'redirect': () => ({ status: 307, headers: { location: '/elsewhere' }, body: '' }),
};

// deliveries change how the API's response is sent.
const deliveries: Record<string, (response: ServerResponse, reply: Reply) => void> = {
  'no response': (response) => response.destroy(),
  'never a response': () => {},
  'cut body': (response, reply) => {
    response.writeHead(reply.status, { ...reply.headers, 'content-length': String(reply.body.length + 10) });
    response.write(reply.body, () => response.destroy());
  },
  'cut chunks': (response, reply) => {
    response.writeHead(reply.status, reply.headers);
    response.write(reply.body, () => response.destroy());
  },
  'cut body without a length': (response, reply) => {
    const headers = Object.entries(reply.headers).map(([name, value]) => `${name}: ${value}\r\n`).join('');
    response.socket?.end(`HTTP/1.1 ${reply.status} S\r\n${headers}connection: close\r\n\r\n${reply.body.slice(0, -1)}`);
  },
  'too large': (response, reply) => {
    response.writeHead(reply.status, reply.headers);
    response.end(reply.body.replace('{', `{"padding":"${'x'.repeat(2 << 20)}",`));
  },
};

// endless sends a beginning, and then the rest once a millisecond.
const endless = (beginning: string, rest: string) => ({ socket }: ServerResponse) => {
  socket?.write(beginning);
  const timer = setInterval(() => socket?.write(rest), 1);
  socket?.on('error', () => {}).on('close', () => clearInterval(timer));
};
const created = 'HTTP/1.1 201 S\r\ncontent-type: application/json\r\n';

// others are what servers send that are not the API. Random purchases omit them, because each lasts until the limit.
const others: typeof deliveries = {
  '101': ({ socket }) => socket?.write('HTTP/1.1 101 S\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n'),
  'headers without an end': endless(created, 'x: 1\r\n'),
  'body without an end': endless(`${created}\r\n{"id":"o1"}`, ' '),
  'interim responses without an end': endless('', 'HTTP/1.1 103 S\r\n\r\n'),
  '300 MB': (response) => {
    response.writeHead(201, { 'content-type': 'application/json' });
    response.write('{"id":"o1"}');
    Readable.from(Array(300).fill(' '.repeat(1 << 20))).on('end', () => { throw new Error('300 MB were read'); }).pipe(response);
  },
};
export const foreign = Object.keys(others);

export const faults: string[] = [
  'none', 'no request', ...Object.keys(deliveries),
  ...Object.keys(rejections).flatMap((name) => [`${name}, before`, `${name}, after`]),
];

export class FaultyServer {
  api: API = async () => problem(404, 'not-found', 'never');
  plan: string[] = []; // one fault for each of the next requests
  calls: Call[] = [];
  replies: Reply[] = []; // responses that seem complete to the client
  readonly #server: Server;

  constructor() {
    this.#server = createServer((request, response) => void this.#serve(request, response));
  }

  async start(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  stop(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let body = '';
    for await (const chunk of request) body += chunk;
    const headers = request.headers as Record<string, string>;
    const call = { method: request.method ?? '', path: request.url ?? '', key: headers['idempotency-key'] ?? '', headers, body };
    this.calls.push(call);
    const fault = this.plan.shift() ?? 'none';
    const [name, time] = fault.split(', ') as [string, string?];
    if (name === 'no request') {
      response.destroy();
      return;
    }
    let reply = time === 'before' ? undefined : await this.api(call);
    const deliver = deliveries[name] ?? others[name];
    if (deliver && reply) {
      if (name === 'cut body without a length') this.replies.push(reply); // without a length, the client cannot detect the cut
      deliver(response, reply);
      return;
    }
    reply = rejections[name]?.() ?? reply;
    if (!reply) throw new Error(`unknown fault: ${fault}`);
    this.replies.push(reply);
    response.writeHead(reply.status, { ...reply.headers, 'content-length': Buffer.byteLength(reply.body) });
    response.end(reply.body);
  }
}
