package main_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments/stripetest"
)

// account returns the shop's only account.
func (s *shop) account() uuid.UUID {
	s.t.Helper()
	var id uuid.UUID
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), "SELECT id FROM accounts").Scan(&id))
	return id
}

// keys runs a command of the group that needs no provider.
func (s *shop) keys(args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	return run(s.t, s.with("STRIPE_SECRET_KEY=", "STRIPE_API_BASE=", "LOG_LEVEL=error"), append([]string{"keys"}, args...)...)
}

func TestKeysList(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	code, stdout, stderr := s.keys("list")
	require.Zero(t, code, stderr)
	require.Equal(t, "No key is stuck.\n", stdout)
	require.Empty(t, stderr)
	code, stdout, _ = s.keys("list", "--json")
	require.Zero(t, code)
	require.Equal(t, "[]\n", stdout)

	s.sell("a-finished-order-1")
	s.abandon("stuck-order-00001", "stuck-order-00002", "young-order-00001")
	s.exec("UPDATE idempotency_keys SET last_run_at = now() WHERE idempotency_key = 'young-order-00001'")
	s.exec("UPDATE idempotency_keys SET needs_review_at = now(), last_run_at = '2026-01-02 03:04:05Z' WHERE idempotency_key = 'stuck-order-00002'")
	first, second := idempotency.KeyID(s.account(), "stuck-order-00001"), idempotency.KeyID(s.account(), "stuck-order-00002")

	code, stdout, stderr = s.keys("list")
	require.Zero(t, code, stderr)
	require.Empty(t, stderr)
	table := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	require.Len(t, table, 3)
	require.Regexp(t, `^KEY +ACCOUNT +OPERATION +RECOVERY POINT +STATE +RUNS +CREATED +LAST RUN +LAST ERROR$`, table[0])
	require.Regexp(t, "^"+second.String()+"  "+s.account().String()+`  create_order  charge_created  needs_review  1     .*2026-01-02 03:04:05  the payment provider is unavailable`, table[1],
		"the longest idle first")
	require.Regexp(t, "^"+first.String()+"  "+s.account().String()+`  create_order  charge_created  waiting       1     `, table[2])
	require.NotContains(t, stdout, "stuck-order", "the client's keys are not for lists")

	code, stdout, stderr = s.keys("list", "--json", "--limit", "1")
	require.Zero(t, code, stderr)
	var items []struct {
		ID            uuid.UUID  `json:"id"`
		AccountID     uuid.UUID  `json:"account_id"`
		Operation     string     `json:"operation"`
		RecoveryPoint string     `json:"recovery_point"`
		State         string     `json:"state"`
		Attempt       int        `json:"attempt"`
		CreatedAt     time.Time  `json:"created_at"`
		LastRunAt     time.Time  `json:"last_run_at"`
		NeedsReviewAt *time.Time `json:"needs_review_at"`
		LastError     string     `json:"last_error"`
	}
	decoder := json.NewDecoder(strings.NewReader(stdout))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&items))
	require.Len(t, items, 1)
	item := items[0]
	require.Equal(t, second, item.ID)
	require.Equal(t, s.account(), item.AccountID)
	require.Equal(t, []string{"create_order", "charge_created", "needs_review"}, []string{item.Operation, item.RecoveryPoint, item.State})
	require.Equal(t, 1, item.Attempt)
	require.Equal(t, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), item.LastRunAt)
	require.WithinDuration(t, time.Now(), item.CreatedAt, time.Hour)
	require.NotNil(t, item.NeedsReviewAt)
	require.Contains(t, item.LastError, "the payment provider is unavailable")
}

func TestKeysShow(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.abandon("an-order-to-look-at")
	account := s.account()
	id := idempotency.KeyID(account, "an-order-to-look-at")
	code, story, stderr := s.keys("show", id.String())
	require.Zero(t, code, stderr)
	require.Empty(t, stderr)
	for _, line := range []string{
		"key +" + id.String(),
		"account +" + account.String(),
		"Idempotency-Key +an-order-to-look-at",
		"operation +create_order",
		"state +waiting",
		"recovery point +charge_created",
		"runs +1",
		"last error +the payment provider is unavailable: .*",
		"order +" + idempotency.DeriveID("order", account, "an-order-to-look-at").String() + ", pending, 2500 usd in the smallest unit",
		"payment intent +pi_[0-9A-Za-z]+",
		"Timeline, UTC",
		`20[0-9: -]{17} +key claimed`,
		`20[0-9: -]{17} +order\.created \{"amount": ?2500, "currency": ?"usd"\} from 127\.0\.0\.1`,
		`20[0-9: -]{17} +order\.charge_created \{"payment_intent_id": ?"pi_[0-9A-Za-z]+"\} from 127\.0\.0\.1`,
	} {
		require.Regexp(t, "(?m)^"+line+"$", story)
	}
	require.Less(t, strings.Index(story, "order.created"), strings.Index(story, "order.charge_created"))

	for name, args := range map[string][]string{
		"by the client's key":     {"show", "an-order-to-look-at"},
		"before its account":      {"show", "an-order-to-look-at", "--account", account.String()},
		"behind its account":      {"show", "--account=" + account.String(), "an-order-to-look-at"},
		"behind the end of flags": {"show", "--", "an-order-to-look-at"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := s.part(t).keys(args...)
			require.Zero(t, code, stderr)
			require.Equal(t, story, stdout)
		})
	}

	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"a key that nobody used": {[]string{"show", "nobody-used-this-key"}, 1, "there is no such key, or it was deleted after its retention"},
		"an id of nothing":       {[]string{"show", uuid.NewString()}, 1, "there is no such key, or it was deleted after its retention"},
		"another account's":      {[]string{"show", id.String(), "--account", uuid.NewString()}, 1, "there is no such key, or it was deleted after its retention"},
		"an account that is no id": {
			[]string{"show", id.String(), "--account", "mine"},
			2,
			`wrong usage: invalid value "mine" for flag -account: invalid UUID length: 4` + "\nSee orders help keys show",
		},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := s.part(t).keys(test.args...)
			require.Equal(t, test.code, code)
			require.Empty(t, stdout)
			require.Equal(t, "orders: "+test.want+"\n", stderr)
		})
	}

	s.sell("a-finished-order-2")
	code, story, stderr = s.keys("show", "a-finished-order-2")
	require.Zero(t, code, stderr)
	require.Regexp(t, `(?m)^state +finished$`, story)
	require.Regexp(t, `(?m)^20.{17} +finished, answer 201 stored$`, story)
}

// part is the same shop, for a part of its test.
func (s *shop) part(t *testing.T) *shop {
	part := *s
	part.t = t
	return &part
}

// Two accounts may use the same key, and an operator must say which one.
func TestKeys_ambiguous(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	mine := s.account()
	const shared = "a-key-of-two-accounts"
	a := s.serve(s.environ, "--shutdown-delay", "0")
	s.abandonAt(a, shared)
	a.key = createAccount(t, s.environ)
	s.abandonAt(a, shared)
	a.stop()

	for _, args := range [][]string{{"show", shared}, {"retry", shared, "--reason", "a test"}, {"resolve", shared, "--reason", "a test"}} {
		code, stdout, stderr := run(t, s.with("LOG_LEVEL=error"), append([]string{"keys"}, args...)...)
		require.Equal(t, 1, code)
		require.Empty(t, stdout)
		require.Equal(t, "orders: several accounts use that key: name one with --account, or the key by its id\n", stderr)
	}
	code, stdout, stderr := s.keys("show", shared, "--account", mine.String())
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, idempotency.KeyID(mine, shared).String())
	code, _, stderr = run(t, s.environ, "keys", "resolve", idempotency.KeyID(mine, shared).String(), "--reason", "a test")
	require.Zero(t, code, stderr)
	require.Equal(t, 1, s.count("SELECT count(*) FROM idempotency_keys WHERE recovery_point = 'finished'"))
	require.Empty(t, s.stripe.Charges())
}

func TestKeysRetry(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const key = "an-order-to-retry-1"
	s.abandon(key)
	s.exec("UPDATE idempotency_keys SET needs_review_at = now(), completer_attempt = 10")
	id := idempotency.KeyID(s.account(), key)

	away := s.providerAway()
	code, stdout, stderr := run(t, s.environ, "keys", "retry", key, "--reason", "Stripe is back")
	away.Release()
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Regexp(t, `(?m)^orders: key `+id.String()+` stays unfinished, at charge_created: the outcome of the payment is not known yet: `, stderr)

	code, stdout, stderr = run(t, s.environ, "keys", "retry", "--by", "grace", key, "--reason", "Stripe is really back")
	require.Zero(t, code, stderr)
	require.Regexp(t, `^Key `+id.String()+` is finished\. Its answer, to every retry:\n201 \{"id":.*"status":"paid".*\}\n$`, stdout)
	require.Len(t, s.stripe.Charges(), 1)

	_, story, _ := s.keys("show", key)
	require.Regexp(t, `(?m)^20.{17} +key\.retry \{"by": ?".+", "reason": ?"Stripe is back"\}$`, story, "whoever runs the program")
	require.Regexp(t, `(?m)^20.{17} +key\.retry \{"by": ?"grace", "reason": ?"Stripe is really back"\}$`, story)
	require.Regexp(t, `(?m)^20.{17} +run 3, the last one so far$`, story)

	code, stdout, stderr = run(t, s.environ, "keys", "retry", key, "--reason", "once more")
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "orders: key "+id.String()+" is finished, its answer is 201 and stays so\n")
	require.Len(t, s.stripe.Charges(), 1)
}

func TestKeysResolve(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const key = "an-order-to-resolve"
	s.abandon(key)
	id := idempotency.KeyID(s.account(), key)
	code, stdout, stderr := run(t, s.environ, "keys", "resolve", id.String(), "--reason", "the customer does not want it any more")
	require.Zero(t, code, stderr)
	require.Regexp(t, `^Key `+id.String()+` is finished\. Its answer, to every retry:\n422 \{"type":"/problems/payment-refused".*"code":"closed_by_operator".*\}\n$`, stdout)
	require.Empty(t, s.stripe.Charges())
	stored := regexp.MustCompile(`(?m)^422 (.*)$`).FindStringSubmatch(stdout)[1]

	a := s.serve(s.environ, "--shutdown-delay", "0")
	answer, err := a.order(key, tea)
	require.NoError(t, err)
	require.Equal(t, http.StatusUnprocessableEntity, answer.status)
	require.Equal(t, stored, answer.body)
	require.Equal(t, "true", answer.header.Get("Idempotent-Replayed"))
	a.stop()

	code, _, stderr = run(t, s.environ, "keys", "resolve", key, "--reason", "once more")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "is finished, its answer is 422 and stays so\n")

	// While a run holds a key it may be anything.
	s.abandon("an-order-that-runs-1")
	s.exec("UPDATE idempotency_keys SET locked_at = now() WHERE idempotency_key = 'an-order-that-runs-1'")
	code, stdout, stderr = run(t, s.environ, "keys", "resolve", "an-order-that-runs-1", "--reason", "impatience")
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "stays unfinished, at charge_created: a request with this idempotency key is in progress\n")
}

// What acts on a key needs the provider, and says so.
func TestKeys_needAProvider(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, command := range []string{"retry", "resolve"} {
		code, _, stderr := s.keys(command, "a-key-of-this-test", "--reason", "a test")
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "\n  STRIPE_SECRET_KEY: not set; ")
	}
}

// The commands know whether a key is about an order or about a refund.
func TestKeys_ofRefunds(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	a := s.serve(s.environ, "--shutdown-delay", "0")
	paid, err := a.order("an-order-to-refund-1", tea)
	require.NoError(t, err)
	order := requirePaid(t, paid)
	away := s.stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: "POST /v1/refunds", Times: stripetest.Always})
	for _, key := range []string{"a-refund-to-retry-1", "a-refund-to-resolve"} {
		answer, err := a.do(t.Context(), http.MethodPost, "/v1/orders/"+order+"/refunds", `{"amount":1000}`, http.Header{"Idempotency-Key": {key}})
		require.NoError(t, err)
		require.Equal(t, http.StatusServiceUnavailable, answer.status, answer.body)
	}
	away.Release()
	a.stop()

	_, list, _ := s.keys("list")
	require.NotContains(t, list, "create_refund", "they are young")
	s.exec("UPDATE idempotency_keys SET last_run_at = last_run_at - interval '9 minutes'")
	_, list, _ = s.keys("list")
	require.Equal(t, 2, strings.Count(list, "create_refund  refund_created  waiting"), list)
	code, story, stderr := s.keys("show", "a-refund-to-retry-1")
	require.Zero(t, code, stderr)
	for _, line := range []string{
		"operation +create_refund",
		"recovery point +refund_created",
		"refund +" + idempotency.DeriveID("refund", s.account(), "a-refund-to-retry-1").String() + ", pending, 1000 usd in the smallest unit",
		"order +" + order + ", paid, 2500 usd in the smallest unit",
		`20[0-9: -]{17} +refund\.created \{.*"amount": ?1000.*\} from 127\.0\.0\.1`,
	} {
		require.Regexp(t, "(?m)^"+line+"$", story)
	}

	code, _, stderr = run(t, s.environ, "keys", "resolve", "a-refund-to-resolve", "--reason", "the customer keeps the tea")
	require.Equal(t, 1, code, "what was sent nine minutes ago may still arrive")
	require.Contains(t, stderr, "stays unfinished, at refund_created: the outcome of the payment is not known yet: ")
	s.exec("UPDATE idempotency_keys SET last_run_at = last_run_at - interval '11 minutes'")
	code, stdout, stderr := run(t, s.environ, "keys", "resolve", "a-refund-to-resolve", "--reason", "the customer keeps the tea")
	require.Zero(t, code, stderr)
	require.Regexp(t, `\n422 \{"type":"/problems/payment-refused".*"code":"closed_by_operator".*\}\n$`, stdout)
	require.Empty(t, s.stripe.Refunds())

	code, stdout, stderr = run(t, s.environ, "keys", "retry", "a-refund-to-retry-1", "--reason", "Stripe is back")
	require.Zero(t, code, stderr)
	require.Regexp(t, `\n201 \{"id":.*"status":"succeeded".*\}\n$`, stdout)
	require.Len(t, s.stripe.Refunds(), 1)
	_, story, _ = s.keys("show", "a-refund-to-retry-1")
	require.Regexp(t, "(?m)^refund at the provider +"+s.stripe.Refunds()[0].ID+"$", story)
	require.Regexp(t, "(?m)^order +"+order+", partially_refunded, ", story)
}
