package api_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/orders"
)

// page reads the answer as a page of orders.
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

func TestOrdersAreListedNewestFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	empty := f.get(t, "/v1/orders")
	require.JSONEq(t, `{"data":[],"has_more":false}`, string(empty.body))

	var newestFirst []string
	for i := range 5 {
		card := "pm_card_visa"
		if i == 2 {
			card = "pm_card_visa_chargeDeclined"
		}
		f.create(t, newKey(), orderBody(withMember("payment_method", card)))
		var id string
		require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT id FROM orders ORDER BY created_at DESC LIMIT 1").Scan(&id))
		newestFirst = append([]string{id}, newestFirst...)
	}
	// Two of one moment, which the id tells apart.
	f.exec(t, "UPDATE orders SET created_at = (SELECT created_at FROM orders WHERE id = $1) WHERE id = $2", newestFirst[1], newestFirst[2])
	if newestFirst[1] < newestFirst[2] {
		newestFirst[1], newestFirst[2] = newestFirst[2], newestFirst[1]
	}

	whole, more := f.get(t, "/v1/orders").page(t)
	require.Equal(t, newestFirst, whole)
	require.False(t, more)
	for size := 1; size <= 6; size++ {
		var all []string
		for path := "/v1/orders?limit=" + strconv.Itoa(size); ; {
			ids, more := f.get(t, path).page(t)
			all = append(all, ids...)
			require.LessOrEqual(t, len(ids), size)
			if !more {
				break
			}
			path = "/v1/orders?limit=" + strconv.Itoa(size) + "&after=" + ids[len(ids)-1]
		}
		require.Equal(t, newestFirst, all, "in pages of %d", size)
	}
	ids, more := f.get(t, "/v1/orders?after="+newestFirst[4]).page(t)
	require.Empty(t, ids)
	require.False(t, more)

	other, _ := f.get(t, "/v1/orders", header("Authorization", "Bearer "+f.otherAccount(t))).page(t)
	require.Empty(t, other, "another account's orders are nobody else's")
}

func TestInvalidPagesAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.create(t, newKey(), orderBody()).order(t).ID.String()
	for query, pointers := range map[string][]string{
		"limit=0":                    {"/limit"},
		"limit=101":                  {"/limit"},
		"limit=-1":                   {"/limit"},
		"limit=":                     {"/limit"},
		"limit":                      {"/limit"},
		"limit=ten":                  {"/limit"},
		"limit=1.0":                  {"/limit"},
		"limit=010":                  {"/limit"},
		"limit=%2B5":                 {"/limit"},
		"limit=99999999999999999999": {"/limit"},
		"limit=5&limit=5":            {"/limit"},
		"after=":                     {"/after"},
		"after=x":                    {"/after"},
		"after=00000000-0000-0000-0000-000000000000": {"/after"},
		"after=" + uuid.NewString():                  {"/after"},
		"after=" + strings.ToUpper(id):               {"/after"},
		"after=%7B" + id + "%7D":                     {"/after"},
		"after=" + strings.ReplaceAll(id, "-", ""):   {"/after"},
		"after=" + id + "%00":                        {"/after"},
		"after=" + id + "&after=" + id:               {"/after"},
		"after=" + url.QueryEscape("' OR 1=1 --"):    {"/after"},
		"limit=0&after=x":                            {"/limit", "/after"},
		"Limit=5":                                    {""},
		"page=2":                                     {""},
		"limit=5;after=x":                            {""},
		"limit=%zz":                                  {""},
	} {
		req := f.request(t, http.MethodGet, "/v1/orders", "")
		req.URL.RawQuery = query
		got, err := f.do(req)
		require.NoError(t, err, query)
		require.Equal(t, http.StatusUnprocessableEntity, got.status, query)
		require.Equal(t, "validation-failed", got.problem(t).slug(), query)
		require.Equal(t, pointers, got.problem(t).pointers(), query)
	}
	for _, query := range []string{"", "limit=1", "limit=100", "limit=100&after=" + id} {
		require.Equal(t, http.StatusOK, f.get(t, "/v1/orders?"+query).status, query)
	}
}

// Whatever another account owns looks like what does not exist, byte for byte.
func TestForeignIdsLookUnknown(t *testing.T) {
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

func TestWhatIsNoIdIsNotFound(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.create(t, newKey(), orderBody()).order(t).ID.String()
	for _, path := range []string{
		"/v1/orders/" + uuid.NewString(),
		"/v1/orders/" + uuid.Nil.String(),
		"/v1/orders/" + strings.ToUpper(id),
		"/v1/orders/{" + id + "}",
		"/v1/orders/urn:uuid:" + id,
		"/v1/orders/" + strings.ReplaceAll(id, "-", ""),
		"/v1/orders/" + id + "%00",
		"/v1/orders/" + id + "%20",
		"/v1/orders/" + id + "/",
		"/v1/orders/" + id + "/x",
		"/v1/orders/" + "%" + strconv.FormatInt(int64(id[0]), 16) + id[1:],
		"/v1/orders/..%2F" + id,
		"/v1/orders/1",
		"/v1/orders/%27%20OR%201=1--",
		"/v1/orders/",
	} {
		got := f.get(t, path)
		require.Equal(t, http.StatusNotFound, got.status, path)
		require.Equal(t, "not-found", got.problem(t).slug(), path)
	}
	require.Equal(t, http.StatusOK, f.get(t, "/v1/orders/"+id).status)
}
