package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/api"
	"example.com/orders-api/orders"
)

func (got response) page(t *testing.T) (ids []string, more bool) {
	t.Helper()
	var page struct {
		Data    []orders.Order `json:"data"`
		HasMore bool           `json:"has_more"`
	}
	require.NoError(t, json.Unmarshal(got.body, &page), "%d %s", got.status, got.body)
	for _, o := range page.Data {
		ids = append(ids, o.ID.String())
	}
	return ids, page.HasMore
}

// A read ignores the key, whatever its form: it stores nothing and is never a replay.
func TestReads_keyIgnored(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	used := newKey()
	path := "/v1/orders/" + f.create(t, used, orderBody()).order(t).ID.String()
	for _, key := range []string{used, newKey(), "short"} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			got := f.send(t, method, path, "", header("Idempotency-Key", key))
			require.Equal(t, http.StatusOK, got.status, "%s %s", method, key)
			require.Empty(t, got.header.Get("Idempotent-Replayed"))
		}
	}
	f.requireOnePaidOrder(t)
}

func TestReads_otherAccount(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	theirs := f.create(t, newKey(), orderBody()).order(t).ID.String()
	me, requestID := header("Authorization", "Bearer "+f.otherAccount(t)), header("X-Request-Id", "same-for-all")
	mine := f.create(t, newKey(), orderBody(), me).order(t).ID.String()
	require.Equal(t, http.StatusOK, f.get(t, "/v1/orders/"+mine, me).status)

	for _, path := range []string{"/v1/orders/", "/v1/orders?after="} {
		foreign := f.get(t, path+theirs, me, requestID)
		unknown := f.get(t, path+uuid.NewString(), me, requestID)
		require.Equal(t, string(unknown.body), string(foreign.body))
		require.Equal(t, unknown.status, foreign.status)
		foreign.header.Del("Date")
		unknown.header.Del("Date")
		require.Equal(t, unknown.header, foreign.header)
	}
}

// Server and contract agree on the form of every id in a path or query. The id of zeros
// has the right form, and no object has it.
func TestParameters_ids(t *testing.T) {
	t.Parallel()
	c := openContract(t)
	id := uuid.NewString()
	for path, item := range c.doc.Paths.Map() {
		for _, operation := range item.Operations() {
			for _, parameter := range operation.Parameters {
				schema := parameter.Value.Schema.Value
				if schema.Format != "uuid" {
					continue
				}
				for _, text := range []string{
					id, strings.ToUpper(id), strings.ReplaceAll(id, "-", ""), "urn:uuid:" + id, "{" + id + "}", id[1:], id + "\n", "",
				} {
					_, err := api.ParseID(text)
					require.Equal(t, err == nil, schema.VisitJSON(text) == nil, "%s, %s: %q", path, parameter.Value.Name, text)
				}
			}
		}
	}
	_, err := api.ParseID(uuid.Nil.String())
	require.Error(t, err)
}

// slowClient does not read a response before read is closed.
type slowClient struct {
	http.ResponseWriter
	writing chan struct{}
	read    chan struct{}
}

func (c slowClient) Write(body []byte) (int, error) {
	close(c.writing)
	<-c.read
	return len(body), nil
}

func TestReads_slowClients(t *testing.T) {
	t.Parallel()
	f := newFixture(t, poolSize(1), limiterBounds(1, 1))
	slow := slowClient{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.router.ServeHTTP(slow, f.request(t, http.MethodGet, "/v1/orders?limit=100", ""))
	}()
	<-slow.writing
	require.Equal(t, http.StatusOK, f.get(t, "/v1/orders?limit=1").status)
	close(slow.read)
	<-ended
}
