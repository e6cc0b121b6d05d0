package main_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/programtest"
)

// API keys are rotated. After a leak, the audit log shows what a client has started with which one.
func TestAccountsKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	keys := func(args ...string) string {
		t.Helper()
		stdout, stderr := programtest.Succeed(t, f.quiet(), append([]string{"accounts", "keys"}, args...)...)
		require.Empty(t, stderr)
		return stdout
	}
	account := f.account().String()
	created := keys("create", "--account="+account)
	require.Regexp(t, `^API key [0-9a-f-]{36} of account `+account+`, which is shown only once:\nok_[A-Z2-7]{26}\n$`, created)
	second := regexp.MustCompile(`ok_\w+`).FindString(created)
	accounts, _ := programtest.Succeed(t, f.quiet(), "accounts", "list")
	require.Regexp(t, `^ID +CREATED +API KEYS +NAME\n`+account+`  20[0-9: -]{17}  2 +"Fixture"\n$`, accounts)

	a := f.serve(f.environ, "--shutdown-delay", "0")
	f.abandonAt(a, "an-order-to-cancel-1")
	id := idempotency.DeriveID("order", f.account(), "an-order-to-cancel-1").String()
	a.Key = second
	canceled := a.MustDo(http.MethodPost, "/v1/orders/"+id+"/cancel", "{}", http.Header{"Idempotency-Key": {"a-cancel-of-an-order"}})
	require.Equal(t, http.StatusOK, canceled.Status, "%s", canceled.Body)
	a.Stop()
	history := f.keys("show", id)
	require.Regexp(t, `(?m)order\.created \{.*"api_key": ?"`+f.apiKey[:8]+`"`, history)
	require.Regexp(t, `(?m)order\.cancel_requested \{.*"api_key": ?"`+second[:8]+`"`, history)

	first := strings.Fields(keys("list", "--account", account))[6]
	revoked := keys("revoke", "--account", account, first)
	require.Regexp(t, `^API key `+first+` \(`+f.apiKey[:8]+`…\) was revoked at 20[0-9: -]{17}, UTC\. It stops working within 5 seconds\.\n$`, revoked)
	require.Equal(t, revoked, keys("revoke", first, "--account", account), "again")
	other := createAccount(t, f.environ)
	const moment = `20[0-9: -]{17}`
	listed := keys("list", "--account", account)
	require.Regexp(t, `^PREFIX +ID +ACCOUNT +CREATED +REVOKED\n`+
		f.apiKey[:8]+`  [0-9a-f-]{36}  `+account+`  `+moment+`  `+moment+`\n`+
		second[:8]+`  [0-9a-f-]{36}  `+account+`  `+moment+`  -\n$`, listed, "oldest first")
	require.Regexp(t, `(?m)^`+other[:8]+`  [0-9a-f-]{36}  [0-9a-f-]{36}  `+moment+`  -$`, keys("list"), "the key of any account")
	for _, secret := range []string{f.apiKey[8:], second[8:]} {
		require.NotContains(t, history+listed+a.Stderr.String(), secret)
	}
	require.Equal(t, "orders: the account has no such API key\n", programtest.Fail(t, f.quiet(), "accounts", "keys", "revoke", "--account", account, uuid.NewString()))
}
