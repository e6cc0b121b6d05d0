// The idempotency utility of Powertools for AWS Lambda, with its persistence layer for Redis
// and Valkey. The handler has the form of a Lambda function behind an API Gateway.
const { createClient } = require('@redis/client');
const { makeIdempotent, IdempotencyConfig } = require('@aws-lambda-powertools/idempotency');
const { CachePersistenceLayer } = require('@aws-lambda-powertools/idempotency/cache');
const { account, answer, listen } = require('./fixture');

const timeout = 3000; // Lambda's default, in milliseconds

// makeIdempotent throws an IdempotencyKeyError as the cause of another error.
const statuses = {
  IdempotencyAlreadyInProgressError: 409,
  IdempotencyValidationError: 422,
  IdempotencyKeyError: 400,
};

async function handle(event) {
  if (event.path === '/refunds') return { statusCode: 404, headers: {}, body: '{"error":"no such charge"}' };
  const { status, body, location } = await answer(event.requestContext.authorizer.principalId, JSON.parse(event.body));
  if (status >= 500) throw new Error(body.error); // the utility then deletes its record
  return { statusCode: status, headers: location ? { location } : {}, body: JSON.stringify(body) };
}

async function main() {
  const client = await createClient({ url: process.env.REDIS_URL }).connect();
  const handler = makeIdempotent(handle, {
    persistenceStore: new CachePersistenceLayer({ client }),
    config: new IdempotencyConfig({
      eventKeyJmesPath: 'headers."idempotency-key"',
      throwOnNoIdempotencyKey: true,
      ...(process.env.STORE === 'redis-validated' ? { payloadValidationJmesPath: 'body' } : {}),
      ...(process.env.LIFETIME ? { expiresAfterSeconds: Number(process.env.LIFETIME) } : {}),
    }),
  });
  // The API Gateway and the Lambda runtime.
  listen((request, response) => {
    let body = '';
    request.on('data', (chunk) => { body += chunk; });
    request.on('end', async () => {
      const send = (status, headers, text) => response.writeHead(status, { 'Content-Type': 'application/json', ...headers }).end(text);
      const principalId = account(request.headers.authorization);
      if (!principalId) return send(401, {}, '{}');
      if (request.method !== 'POST') return send(404, {}, '{}');
      const ends = Date.now() + timeout;
      const event = { httpMethod: 'POST', path: request.url, headers: request.headers, body, requestContext: { authorizer: { principalId } } };
      try {
        const { statusCode, headers, body: text } = await handler(event, { getRemainingTimeInMillis: () => ends - Date.now() });
        send(statusCode, headers, text);
      } catch (error) {
        send(error instanceof SyntaxError ? 400 : statuses[error.name] || statuses[error.cause?.name] || 502, {}, JSON.stringify({ error: error.message }));
      }
    });
  });
}
main();
