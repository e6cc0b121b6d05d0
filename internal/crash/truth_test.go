package crash_test

import (
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// truthSchema is what the harness knows beside the program: what clients heard,
// what the provider did, and every change of a key and of an order. It lives
// beside the program's tables in the case's database, so that the invariants
// are queries. The triggers are the harness's, never a migration.
const truthSchema = `
CREATE SCHEMA truth;

CREATE TABLE truth.http (
    op              serial,
    account_id      uuid,
    idempotency_key text, -- NULL for reads
    params          text,
    asked           timestamptz,
    told            timestamptz,
    status          integer, -- 0: no answer came
    body            text,
    kind            text,
    location        text,
    final           boolean
);
CREATE TABLE truth.intent (
    id        text,
    order_id  text,
    amount    bigint,
    currency  text,
    status    text,
    successes integer
);
CREATE TABLE truth.refund (
    id        text,
    name      text, -- ours
    intent_id text,
    amount    bigint,
    currency  text,
    status    text
);
CREATE TABLE truth.call (
    at           timestamptz,
    method       text,
    path         text,
    provider_key text,
    body         bytea,
    order_id     text,
    status       integer,
    heard        boolean
);
CREATE TABLE truth.held (at timestamptz, pid integer); -- sessions inside a transaction while the provider was called
CREATE TABLE truth.account (id uuid, email text);

CREATE TABLE truth.key_log (
    at            timestamptz DEFAULT clock_timestamp(),
    op            text,
    account_id    uuid,
    id            uuid,
    old_point     text,
    new_point     text,
    old_token     uuid,
    new_token     uuid,
    old_locked_at timestamptz,
    old_answer    text,
    new_answer    text,
    new_code      integer
);
CREATE FUNCTION truth.log_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO truth.key_log (op, account_id, id, old_point, new_point, old_token, new_token, old_locked_at, old_answer, new_answer, new_code)
    VALUES (TG_OP, OLD.account_id, OLD.id, OLD.recovery_point, NEW.recovery_point, OLD.lease_token, NEW.lease_token, OLD.locked_at,
            concat(OLD.response_code, OLD.response_headers, OLD.response_body),
            concat(NEW.response_code, NEW.response_headers, NEW.response_body), NEW.response_code);
    RETURN NULL;
END $$;
CREATE TRIGGER log_key AFTER UPDATE OR DELETE ON idempotency_keys FOR EACH ROW EXECUTE FUNCTION truth.log_key();

CREATE TABLE truth.intent_log (
    at        timestamptz DEFAULT clock_timestamp(),
    order_id  uuid,
    intent_id text
);
CREATE FUNCTION truth.log_intent() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO truth.intent_log (order_id, intent_id) VALUES (NEW.id, NEW.payment_intent_id);
    RETURN NULL;
END $$;
CREATE TRIGGER log_intent AFTER INSERT OR UPDATE OF payment_intent_id ON orders FOR EACH ROW EXECUTE FUNCTION truth.log_intent()`

// tell writes down what the clients and the provider saw.
func (s *shop) tell() {
	s.t.Helper()
	batch := &pgx.Batch{}
	batch.Queue("TRUNCATE truth.http, truth.intent, truth.refund, truth.call, truth.account")
	for _, a := range []account{s.ann, s.bob} {
		batch.Queue("INSERT INTO truth.account VALUES ($1, $2)", a.id, a.email)
	}
	for _, a := range s.answers {
		batch.Queue(`
INSERT INTO truth.http (account_id, idempotency_key, params, asked, told, status, body, kind, location, final)
VALUES ($1, nullif($2, ''), $3, $4, $5, $6, $7, $8, $9, $10)`,
			a.account.id, a.key, a.params, a.asked, a.told, a.status, a.body, a.kind, a.location, a.isFinal())
	}
	successes := map[string]int{}
	for _, charge := range s.stripe.Charges() {
		successes[charge.IntentID]++
	}
	for _, i := range s.intents() {
		batch.Queue("INSERT INTO truth.intent VALUES ($1, $2, $3, $4, $5, $6)",
			i.ID, i.Metadata["order_id"], i.Amount, i.Currency, i.Status, successes[i.ID])
	}
	for _, r := range s.stripe.Refunds() {
		batch.Queue("INSERT INTO truth.refund VALUES ($1, $2, $3, $4, $5, $6)", r.ID, r.Name, r.IntentID, r.Amount, r.Currency, r.Status)
	}
	for _, r := range s.stripe.Requests() {
		for _, front := range s.fronts {
			if c, known := front.call(r.ID); known {
				batch.Queue("INSERT INTO truth.call VALUES ($1, $2, $3, nullif($4, ''), $5, $6, $7, $8)",
					c.at, r.Method, r.Path, r.Key, r.Body, r.OrderID, r.Status, c.heard)
			}
		}
	}
	require.NoError(s.t, s.pool.SendBatch(s.t.Context(), batch).Close())
}

// violations are the invariants that do not hold, each with the rows that break
// it.
func (s *shop) violations() []string {
	s.t.Helper()
	s.tell()
	var found []string
	for _, i := range invariants() {
		if rows := s.query(i.query); rows != nil {
			found = append(found, i.name+": "+strings.Join(rows, ", "))
		}
	}
	return found
}
