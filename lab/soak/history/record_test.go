package history_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/lab/soak/history"
)

const key = "a-key-of-the-history"

// server responds to the status of the key, and to its requests with 201, 201, a body that
// breaks off, and 402.
func server(t *testing.T) *httptest.Server {
	t.Helper()
	posts := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"state":"finished","response":{"status":201,"type":null,"location":"/v1/orders/1"}}`)
			return
		}
		body, _ := io.ReadAll(r.Body)
		switch posts++; posts {
		case 3:
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(http.StatusCreated)
		case 4:
			w.WriteHeader(http.StatusPaymentRequired)
			_, _ = io.WriteString(w, `{"type":"/problems/payment-declined"}`)
		default:
			w.Header().Set("Location", "/v1/orders/1")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(body)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestRecorder(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "history.jsonl")
	recorder, err := history.Create(file)
	require.NoError(t, err)
	api := server(t)
	client := http.Client{Transport: recorder.Transport(7, api.Client().Transport)}
	send := func(method, path, body string) (string, error) {
		request, err := http.NewRequestWithContext(t.Context(), method, api.URL+path, strings.NewReader(body))
		require.NoError(t, err)
		if method == http.MethodPost {
			request.Header.Set("Idempotency-Key", key)
		}
		response, err := client.Do(request)
		if err != nil {
			return "", err
		}
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return string(text), nil
	}

	for range 2 {
		text, err := send(http.MethodPost, "/v1/orders", "tea")
		require.NoError(t, err)
		require.Equal(t, "tea", text)
	}
	_, err = send(http.MethodPost, "/v1/orders", "tea")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	refused := recorder.Transport(7, refusing{})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/v1/orders", strings.NewReader("tea"))
	require.NoError(t, err)
	request.Header.Set("Idempotency-Key", key)
	_, err = refused.RoundTrip(request) //nolint:bodyclose // there is none
	require.ErrorIs(t, err, syscall.ECONNREFUSED, "is not recorded, because it has no effect")
	_, err = send(http.MethodGet, "/v1/idempotency-keys/"+key, "")
	require.NoError(t, err)
	_, err = send(http.MethodGet, "/v1/orders/1", "") // is not recorded
	require.NoError(t, err)
	v, err := recorder.Judge()
	require.NoError(t, err)
	require.Empty(t, v.Rejected)
	require.Equal(t, []int{4, 1}, []int{v.Operations, v.Keys})

	_, err = send(http.MethodPost, "/v1/orders", "tea")
	require.NoError(t, err)
	require.NoError(t, recorder.Close())
	v, err = history.Judge(file)
	require.NoError(t, err)
	require.Len(t, v.Rejected, 1)
	ops := v.Rejected[0].History
	require.Len(t, ops, 5)
	require.Equal(t, []int{201, 201, 0, 200, 402}, []int{ops[0].Status, ops[1].Status, ops[2].Status, ops[3].Status, ops[4].Status})
	require.Equal(t, ops[0].Response, ops[1].Response)
	require.Equal(t, "/v1/orders/1", ops[0].Response.Location)
	require.NotEqual(t, ops[0].Response.Body, ops[4].Response.Body)
	require.Equal(t, history.Response{Status: 201, Location: "/v1/orders/1"}, ops[3].Response)
	for i, op := range ops {
		require.Equal(t, []any{7, key}, []any{op.Account, op.Key})
		require.Equal(t, op.Kind == history.Read, op.Request == "")
		require.Equal(t, i == 2, op.Return == 0)
	}
}

type refusing struct{}

func (refusing) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
}

func TestJudge_noFile(t *testing.T) {
	t.Parallel()
	_, err := history.Judge(filepath.Join(t.TempDir(), "none"))
	require.Error(t, err)
}
