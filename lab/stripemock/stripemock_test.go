//go:build linux

package stripemock_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// Before the tests, the tool is built once. Two builds at the same moment write one file,
// and a program cannot be started while its file is open for writing.
func TestMain(m *testing.M) {
	if _, err := build(); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func TestStart(t *testing.T) {
	t.Parallel()
	first, second := start(t), start(t)
	require.NotEqual(t, first, second)
	require.Equal(t, http.StatusOK, create(t, first, "amount=2000&currency=usd"))
	require.Equal(t, http.StatusOK, create(t, second, "amount=2000&currency=usd"))
	require.Equal(t, http.StatusBadRequest, create(t, second, "amount=2000&currency=usd&no_such_parameter=1"))
}

func create(t *testing.T, baseURL, form string) (status int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, baseURL+"/v1/payment_intents", strings.NewReader(form))
	require.NoError(t, err)
	r.Close = true
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth("sk_test_123", "")
	client := &http.Client{}
	resp, err := client.Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}
