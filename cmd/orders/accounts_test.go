package main_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/programtest"
)

func (f *fixture) accountKeys(args ...string) string {
	f.t.Helper()
	stdout, stderr := programtest.Succeed(f.t, f.quiet(), append([]string{"accounts", "keys"}, args...)...)
	require.Empty(f.t, stderr)
	return stdout
}

func TestAccountsKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	account := f.account().String()
	created := f.accountKeys("create", "--account="+account)
	require.Regexp(t, `^API key [0-9a-f-]{36} of account `+account+`, which is shown only once:\nok_[A-Z2-7]{26}\n$`, created)
	second := regexp.MustCompile(`ok_\w+`).FindString(created)
	first := strings.Fields(f.accountKeys("list", "--account", account))[6]
	list := func() string {
		stdout, _ := programtest.Succeed(t, f.quiet(), "accounts", "list")
		return stdout
	}
	require.Regexp(t, `^ID +CREATED +API KEYS +NAME\n`+account+`  20[0-9: -]{17}  2 +"Fixture"\n$`, list())
	revoked := f.accountKeys("revoke", "--account", account, first)
	require.Regexp(t, account+`  20[0-9: -]{17}  1 `, list())
	require.Regexp(t, `^API key `+first+` \(`+f.apiKey[:8]+`…\) was revoked at 20[0-9: -]{17}, UTC\. It stops working within 5 seconds\.\n$`, revoked)
	require.Equal(t, revoked, f.accountKeys("revoke", first, "--account", account), "again")

	stdout := f.accountKeys("list", "--account", account)
	table := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	require.Len(t, table, 3)
	require.Regexp(t, `^PREFIX +ID +ACCOUNT +CREATED +REVOKED$`, table[0])
	const moment = `20\d\d-\d\d-\d\d \d\d:\d\d:\d\d`
	require.Regexp(t, `^`+f.apiKey[:8]+`  [0-9a-f-]{36}  `+account+`  `+moment+`  `+moment+`$`, table[1], "oldest first")
	require.Regexp(t, `^`+second[:8]+`  [0-9a-f-]{36}  `+account+`  `+moment+`  -$`, table[2])
	for _, secret := range []string{f.apiKey[8:], second[8:]} {
		require.NotContains(t, stdout, secret)
	}

	other := createAccount(t, f.environ)
	require.NotContains(t, f.accountKeys("list", "--account", account), other[:8])
	require.Regexp(t, `(?m)^`+other[:8]+`  [0-9a-f-]{36}  [0-9a-f-]{36}  `+moment+`  -$`, f.accountKeys("list"), "the key of any account")

	stderr := programtest.Fail(t, f.quiet(), "accounts", "keys", "revoke", "--account", account, uuid.NewString())
	require.Equal(t, "orders: the account has no such API key\n", stderr)
	code, _, stderr := programtest.Run(t, f.quiet(), "accounts", "keys", "revoke", "--account", account, f.apiKey)
	require.Equal(t, 2, code)
	require.NotContains(t, stderr, f.apiKey)
}

// After a leak, the audit log shows what a client has started with which API key.
func TestAPIKey_recorded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.serve(f.environ, "--shutdown-delay", "0")
	_, second, err := accounts.CreateKey(t.Context(), f.pool, f.account())
	require.NoError(t, err)
	f.abandonAt(a, "an-order-to-cancel-1")
	id := idempotency.DeriveID("order", f.account(), "an-order-to-cancel-1").String()
	a.Key = second
	canceled := a.MustDo(http.MethodPost, "/v1/orders/"+id+"/cancel", "{}", http.Header{"Idempotency-Key": {"a-cancel-of-an-order"}})
	require.Equal(t, http.StatusOK, canceled.Status, "%s", canceled.Body)
	a.Stop()
	history := f.keys("show", id)
	require.Regexp(t, `(?m)order\.created \{.*"api_key": ?"`+f.apiKey[:8]+`"`, history)
	require.Regexp(t, `(?m)order\.cancel_requested \{.*"api_key": ?"`+second[:8]+`"`, history)
	for _, secret := range []string{f.apiKey[8:], second[8:]} {
		require.NotContains(t, history+a.Stderr.String(), secret)
	}
}
