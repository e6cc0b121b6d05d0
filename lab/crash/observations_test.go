package crash_test

import (
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// observedSchema is for what clients received, what the provider did, and every change
// of a key and of an order's intent. The invariants join it with the program's tables.
const observedSchema = `
CREATE SCHEMA observed;

CREATE TABLE observed.http (
    op              serial,
    account_id      uuid,
    idempotency_key text, -- NULL for reads
    params          text,
    sent_at         timestamptz,
    received_at     timestamptz,
    status          integer, -- 0: no response arrived
    body            text,
    content_type    text,
    location        text,
    final           boolean
);
CREATE TABLE observed.intent (
    id        text,
    order_id  text,
    key_id    uuid, -- ours, from the metadata
    amount    bigint,
    currency  text,
    status    text,
    successes integer
);
CREATE TABLE observed.refund (
    id        text,
    name      text, -- our id, from the metadata
    intent_id text,
    amount    bigint,
    currency  text,
    status    text
);
CREATE TABLE observed.call (
    at           timestamptz,
    method       text,
    path         text,
    provider_key text,
    body         bytea,
    order_id     text,
    status       integer,
    delivered    boolean -- the response reached the program
);
CREATE VIEW observed.reconciled AS -- intents of lost orders, which reconcile has cancelled
SELECT id
  FROM observed.intent i
 WHERE EXISTS (
           SELECT
             FROM observed.call c
            WHERE c.path = '/v1/payment_intents/' || i.id || '/cancel'
              AND c.provider_key LIKE 'orders-api-reconcile-%'
       );
CREATE TABLE observed.open_transaction (at timestamptz, pid integer); -- during a provider call
CREATE TABLE observed.account (id uuid, email text);
CREATE TABLE observed.aged (at timestamptz, age interval); -- when the harness made the rows older
CREATE FUNCTION observed.aged_since(since timestamptz) RETURNS interval LANGUAGE sql AS $$
    SELECT coalesce(sum(age), '0') FROM observed.aged WHERE at > since
$$;

CREATE TABLE observed.key_log (
    at            timestamptz DEFAULT clock_timestamp(),
    op            text,
    account_id    uuid,
    id            uuid,
    old_point     text,
    new_point     text,
    old_token     uuid,
    new_token     uuid,
    old_locked_at timestamptz,
    old_response  text,
    new_response  text,
    new_code      integer
);
CREATE FUNCTION observed.log_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO observed.key_log (op, account_id, id, old_point, new_point, old_token, new_token, old_locked_at, old_response, new_response, new_code)
    VALUES (TG_OP, OLD.account_id, OLD.id, OLD.recovery_point, NEW.recovery_point, OLD.lease_token, NEW.lease_token, OLD.locked_at,
            concat(OLD.response_code, OLD.response_headers, OLD.response_body),
            concat(NEW.response_code, NEW.response_headers, NEW.response_body), NEW.response_code);
    RETURN NULL;
END $$;
CREATE TRIGGER log_key AFTER UPDATE OR DELETE ON idempotency_keys FOR EACH ROW EXECUTE FUNCTION observed.log_key();

CREATE TABLE observed.intent_log (
    at        timestamptz DEFAULT clock_timestamp(),
    order_id  uuid,
    intent_id text
);
CREATE FUNCTION observed.log_intent() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO observed.intent_log (order_id, intent_id) VALUES (NEW.id, NEW.payment_intent_id);
    RETURN NULL;
END $$;
CREATE TRIGGER log_intent AFTER INSERT OR UPDATE OF payment_intent_id ON orders FOR EACH ROW EXECUTE FUNCTION observed.log_intent()`

func (h *harness) storeObservations() {
	h.t.Helper()
	batch := &pgx.Batch{}
	batch.Queue("TRUNCATE observed.http, observed.intent, observed.refund, observed.call, observed.account")
	for _, a := range []account{h.account, h.otherAccount} {
		batch.Queue("INSERT INTO observed.account VALUES ($1, $2)", a.id, a.email)
	}
	for _, r := range h.responses {
		batch.Queue(`
INSERT INTO observed.http (account_id, idempotency_key, params, sent_at, received_at, status, body, content_type, location, final)
VALUES ($1, nullif($2, ''), $3, $4, $5, $6, $7, $8, $9, $10)`,
			r.account.id, r.key, r.params, r.sentAt, r.receivedAt, r.status, r.body, r.contentType, r.location, r.isFinal())
	}
	successes := map[string]int{}
	for _, charge := range h.stripe.Charges() {
		successes[charge.IntentID]++
	}
	for _, i := range h.intents() {
		batch.Queue("INSERT INTO observed.intent VALUES ($1, $2, nullif($3, '')::uuid, $4, $5, $6, $7)",
			i.ID, i.Metadata["order_id"], i.Metadata["idempotency_key_id"], i.Amount, i.Currency, i.Status, successes[i.ID])
	}
	for _, r := range h.stripe.Refunds() {
		batch.Queue("INSERT INTO observed.refund VALUES ($1, $2, $3, $4, $5, $6)", r.ID, r.Name, r.IntentID, r.Amount, r.Currency, r.Status)
	}
	for _, r := range h.stripe.Requests() {
		for _, proxy := range h.proxies {
			if c, found := proxy.call(r.ID); found {
				batch.Queue("INSERT INTO observed.call VALUES ($1, $2, $3, nullif($4, ''), $5, $6, $7, $8)",
					c.at, r.Method, r.Path, r.Key, r.Body, r.OrderID, r.Status, c.delivered)
			}
		}
	}
	require.NoError(h.t, h.pool.SendBatch(h.t.Context(), batch).Close())
}

func (h *harness) violations() []string {
	h.t.Helper()
	h.storeObservations()
	var found []string
	for _, i := range invariants() {
		if rows := h.query(i.query); rows != nil {
			found = append(found, i.name+": "+strings.Join(rows, ", "))
		}
	}
	return found
}
