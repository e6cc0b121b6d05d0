package main_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// accountKeys runs an accounts keys command.
func (f *fixture) accountKeys(args ...string) (code int, stdout, stderr string) {
	f.t.Helper()
	return run(f.t, f.with("STRIPE_SECRET_KEY=", "STRIPE_API_BASE=", "LOG_LEVEL=error"), append([]string{"accounts", "keys"}, args...)...)
}

// After a rotation the new key works at once, and the revoked one stops working within
// the time that revoke prints.
func TestAccountsKeys_rotation(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	account := "--account=" + f.account().String()
	a := f.serve(f.environ, "--shutdown-delay", "0")
	list := func() int {
		response, err := a.do(t.Context(), http.MethodGet, "/v1/orders", "", nil)
		require.NoError(t, err)
		return response.status
	}
	require.Equal(t, http.StatusOK, list())

	code, stdout, stderr := f.accountKeys("create", account)
	require.Zero(t, code, stderr)
	require.Empty(t, stderr)
	require.Regexp(t, `^API key [0-9a-f-]{36} of account `+f.account().String()+`, which is shown only once:\nok_[A-Z2-7]{26}\n$`, stdout)
	old := a.key
	a.key = regexp.MustCompile(`ok_\w+`).FindString(stdout)
	require.NotEqual(t, old, a.key)
	require.Equal(t, http.StatusOK, list())

	code, stdout, stderr = f.accountKeys("revoke", account, old[:8])
	require.Zero(t, code, stderr)
	require.Empty(t, stderr)
	require.Regexp(t, `^API key [0-9a-f-]{36} \(`+old[:8]+`…\) was revoked at 20[0-9: -]{17}, UTC\. It stops working within 5 seconds\.\n$`, stdout)
	again, repeated, stderr := f.accountKeys("revoke", old[:8], account)
	require.Zero(t, again, stderr)
	require.Equal(t, stdout, repeated)

	require.Equal(t, http.StatusOK, list())
	a.key = old
	eventually(t, func() bool { return list() == http.StatusUnauthorized })
	a.stop()
}

func TestAccountsKeysList(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	account := f.account().String()
	_, created, _ := f.accountKeys("create", "--account", account)
	second := regexp.MustCompile(`ok_\w+`).FindString(created)
	code, _, stderr := f.accountKeys("revoke", "--account", account, f.apiKey[:8])
	require.Zero(t, code, stderr)

	code, stdout, stderr := f.accountKeys("list", "--account", account)
	require.Zero(t, code, stderr)
	require.Empty(t, stderr)
	table := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	require.Len(t, table, 3)
	require.Regexp(t, `^PREFIX +ID +CREATED +REVOKED$`, table[0])
	const moment = `20\d\d-\d\d-\d\d \d\d:\d\d:\d\d`
	require.Regexp(t, `^`+f.apiKey[:8]+`  [0-9a-f-]{36}  `+moment+`  `+moment+`$`, table[1], "oldest first")
	require.Regexp(t, `^`+second[:8]+`  [0-9a-f-]{36}  `+moment+`  -$`, table[2])
	for _, secret := range []string{f.apiKey, f.apiKey[8:], second, second[8:]} {
		require.NotContains(t, stdout, secret)
	}

	id := strings.Fields(table[2])[1]
	code, stdout, stderr = f.accountKeys("revoke", "--account", account, id)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "API key "+id+" ("+second[:8]+"…) was revoked")
}

func TestAccountsKeys_errors(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	account := f.account().String()
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"list, unknown account":   {[]string{"list", "--account", uuid.NewString()}, 1, "there is no such account"},
		"create, unknown account": {[]string{"create", "--account", uuid.NewString()}, 1, "there is no such account"},
		"revoke, unknown account": {[]string{"revoke", "--account", uuid.NewString(), f.apiKey[:8]}, 1, "there is no such account"},
		"unknown key":             {[]string{"revoke", "--account", account, uuid.NewString()}, 1, "the account has no such API key"},
		"a whole API key":         {[]string{"revoke", "--account", account, f.apiKey}, 1, "the account has no such API key"},
		"an invalid account id": {
			[]string{"list", "--account", "mine"},
			2,
			`wrong usage: invalid value "mine" for flag -account: invalid UUID length: 4` + "\nSee orders help accounts keys list",
		},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := f.part(t).accountKeys(test.args...)
			require.Equal(t, test.code, code)
			require.Empty(t, stdout)
			require.Equal(t, "orders: "+test.want+"\n", stderr)
		})
	}
}
