// DBOS Transact: a workflow with the key as its id, and a step that charges.
const { DBOS } = require('@dbos-inc/dbos-sdk');
const express = require('express');
const { account, answer, listen } = require('./fixture');

async function charge(accountID, body) {
  return DBOS.runStep(async () => {
    const answered = await answer(accountID, body);
    if (answered.status >= 500) throw new Error(answered.body.error);
    return answered;
  }, { name: 'charge', retriesAllowed: true, maxAttempts: 10 });
}

async function main() {
  DBOS.setConfig({ name: 'charges', systemDatabaseUrl: process.env.DATABASE_URL });
  const workflow = DBOS.registerWorkflow(charge, { name: 'charge' });
  await DBOS.launch();

  const app = express();
  app.use((req, res, next) => {
    req.account = account(req.get('Authorization'));
    if (!req.account) return res.sendStatus(401);
    next();
  });
  app.use(express.json());
  app.post('/charges', async (req, res, next) => {
    const key = req.get('Idempotency-Key');
    if (!key) return res.status(400).json({ error: 'Idempotency-Key is required' });
    try {
      const handle = await DBOS.startWorkflow(workflow, { workflowID: key })(req.account, req.body);
      const { status, body, location } = await handle.getResult();
      if (location) res.location(location);
      res.status(status).json(body);
    } catch (error) {
      next(error);
    }
  });
  app.post('/refunds', (req, res) => res.status(404).json({ error: 'no such charge' }));
  listen(app);
}
main();
