// Responds to POST /v1/orders as a later version may: with the contract's examples, plus an
// unknown member, status and problem type. The last three characters of the Idempotency-Key
// select the status. The argument is the address of a server with the contract.
import { createServer } from 'node:http';
import { load } from 'js-yaml';

const contract = load(await (await fetch(`${process.argv[2]}/openapi.yaml`)).text());
const resolve = (node) => (node.$ref ? resolve(node.$ref.slice(2).split('/').reduce((at, name) => at[name], contract)) : node);
const { responses } = contract.paths['/v1/orders'].post;
const problemMembers = contract.components.schemas.ProblemDetails.required;

const server = createServer((request, response) => {
  const status = Number(request.headers['idempotency-key'].slice(-3));
  const documented = resolve(responses[status] ?? responses.default);
  const [[mediaType, { examples }]] = Object.entries(documented.content);
  const example = resolve(Object.values(examples)[0]).value;
  const body =
    status < 300
      ? { ...example, status: 'later', later: true }
      : { ...Object.fromEntries(problemMembers.map((name) => [name, example[name]])), type: '/problems/later', status, outcome: 'later', later: true };
  for (const [name, header] of Object.entries(documented.headers)) response.setHeader(name, String(resolve(header).example));
  response.writeHead(status, { 'Content-Type': mediaType }).end(JSON.stringify(body));
});
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}`));
