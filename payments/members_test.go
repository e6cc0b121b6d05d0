package payments_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
)

// objects returns objects of Stripe with all members that were recorded in versions of its API from 2015 to 2026.
func objects(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile("testdata/objects.json")
	require.NoError(t, err)
	var all map[string]any
	require.NoError(t, json.Unmarshal(text, &all))
	return all
}

// replacements are of every type.
var replacements = []any{
	nil, map[string]any{}, map[string]any{"id": "x_1", "object": "x"}, []any{"x"}, "", "text", json.Number("1"), json.Number("1e400"), true,
}

// eachReplaced calls test once for each member of the object at any depth and each replacement of it.
func eachReplaced(t *testing.T, object any, test func(path string, before, after any)) {
	t.Helper()
	var walk func(path string, value any, set func(any))
	walk = func(path string, value any, set func(any)) {
		if path != "" {
			for _, after := range replacements {
				set(after)
				test(path, value, after)
			}
			set(value)
		}
		switch value := value.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(value)) {
				walk(strings.TrimPrefix(path+"."+name, "."), value[name], func(v any) { value[name] = v })
			}
		case []any:
			for i := range value {
				walk(fmt.Sprintf("%s.%d", path, i), value[i], func(v any) { value[i] = v })
			}
		}
	}
	walk("", object, nil)
}

// allowed reports whether a required member can have the value: only its type is required. A value of the
// metadata that is null is an empty one.
func allowed(path string, before, after any) bool {
	if strings.HasPrefix(path, "metadata.") && (after == nil || after == "") {
		return true
	}
	number, ok := after.(json.Number)
	if _, isNumber := before.(float64); isNumber {
		return ok && number == "1"
	}
	return after != "" && fmt.Sprintf("%T", before) == fmt.Sprintf("%T", after)
}

func required(names string, path string) bool { return slices.Contains(strings.Fields(names), path) }

func encode(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return string(text)
}

// What depends on a member that Stripe sends in another form, as it does to some accounts, stays what it is.
func TestMembers_decline(t *testing.T) {
	t.Parallel()
	intent := objects(t)["payment_intent"].(map[string]any)
	failed := maps.Clone(intent["last_payment_error"].(map[string]any))
	failed["payment_intent"] = intent
	provider := respond(response{status: http.StatusPaymentRequired})
	client := newClient(t, provider)
	eachReplaced(t, failed, func(path string, before, after any) {
		if path == "type" || path == "payment_intent.id" && allowed(path, before, after) {
			return // another error, or another intent
		}
		provider.responses[0].body = encode(t, map[string]any{"error": failed})
		e := confirmFailure(t, client)
		name := fmt.Sprintf("%s: %v", path, after)
		require.Equal(t, payments.Declined, e.Outcome, name)
		if !strings.HasPrefix(path, "payment_intent") {
			require.NotNil(t, e.Intent, name)
		}
	})
}

const ofIntent = "object id status amount currency metadata metadata.order_id metadata.idempotency_key_id"

func TestMembers_intent(t *testing.T) {
	t.Parallel()
	intent := objects(t)["payment_intent"].(map[string]any)
	intent["status"] = "requires_action"
	provider := respond(response{status: http.StatusOK, body: encode(t, intent)})
	client := newClient(t, provider)
	want, err := client.Get(t.Context(), "pi_1")
	require.NoError(t, err)
	eachReplaced(t, intent, func(path string, before, after any) {
		name := fmt.Sprintf("%s: %v", path, after)
		provider.responses[0].body = encode(t, intent)
		got, err := client.Get(t.Context(), "pi_1")
		switch {
		case !required(ofIntent, path):
			require.NoError(t, err, name)
			if path == "last_payment_error" || path == "next_action" { // of another type, it is there nevertheless
				require.Equal(t, after != nil, got.LastError != nil && got.Action != nil, name)
			}
			if strings.HasPrefix(path, "last_payment_error") {
				got.LastError = want.LastError
			}
			if strings.HasPrefix(path, "next_action") || path == "client_secret" {
				got.Action = want.Action
			}
			got.AmountReceived, got.Created = want.AmountReceived, want.Created
			require.Equal(t, want, got, name)
		case !allowed(path, before, after):
			e := failure(t, err)
			require.Equal(t, payments.Unknown, e.Outcome, name)
			require.ErrorIs(t, e, payments.ErrUnreadable, name)
			require.Equal(t, path != "id", slices.Equal([]string{"pi_1"}, payments.UnreadableIDs(err)), name)
		}
	})
}

// One object that cannot be read does not hide the others of its page, and is named.
func TestMembers_pages(t *testing.T) {
	t.Parallel()
	ids := func(n int, id func(int) string) (all []string) {
		for i := range n {
			all = append(all, id(i))
		}
		return all
	}
	for kind, test := range map[string]struct {
		required string
		list     func(*payments.Client) (ids []string, err error)
	}{
		"payment_intent": {ofIntent, func(c *payments.Client) ([]string, error) {
			page, _, err := c.List(t.Context(), time.Time{}, "")
			return ids(len(page), func(i int) string { return page[i].ID }), err
		}},
		"refund": {"object id status amount currency payment_intent metadata metadata.refund_id", func(c *payments.Client) ([]string, error) {
			page, err := c.ListRefunds(t.Context(), "pi_1")
			all, _, failed := c.ListAllRefunds(t.Context(), time.Time{}, "")
			if err == nil {
				require.NoError(t, failed)
				require.Equal(t, all, page)
			}
			return ids(len(page), func(i int) string { return page[i].ID }), err
		}},
		"dispute": {"object id status amount currency payment_intent", func(c *payments.Client) ([]string, error) {
			page, err := c.ListDisputes(t.Context(), "pi_1")
			return ids(len(page), func(i int) string { return page[i].ID }), err
		}},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			object, whole := objects(t)[kind].(map[string]any), objects(t)[kind].(map[string]any)
			whole["id"] = "whole"
			provider := respond(response{status: http.StatusOK})
			client := newClient(t, provider)
			eachReplaced(t, object, func(path string, before, after any) {
				name := fmt.Sprintf("%s: %v", path, after)
				provider.responses[0].body = encode(t, map[string]any{"object": "list", "data": []any{object, whole}, "has_more": false})
				got, err := test.list(client)
				switch {
				case !required(test.required, path), path == "metadata" && after == nil && kind == "refund":
					require.NoError(t, err, name)
					require.Equal(t, []string{whole["id"].(string)}, got[1:], name)
				case allowed(path, before, after):
				case path == "id":
					require.ErrorIs(t, err, payments.ErrUnreadable, name)
				case path == "payment_intent" && (after == nil || after == "" || fmt.Sprintf("%T", after) == "map[string]interface {}" && len(after.(map[string]any)) > 0):
					require.ErrorIs(t, err, payments.ErrMismatch, name)
				default:
					require.Equal(t, []string{object["id"].(string)}, payments.UnreadableIDs(err), name)
					require.ErrorIs(t, err, payments.ErrUnreadable, name)
					require.Equal(t, []string{"whole"}, got, name)
				}
			})
		})
	}
}

func TestMembers_events(t *testing.T) {
	t.Parallel()
	event, whole := objects(t)["event"].(map[string]any), objects(t)["event"].(map[string]any)
	whole["id"] = "evt_2"
	provider := respond(response{status: http.StatusOK, header: http.Header{"Date": {"Tue, 29 Sep 2026 12:00:00 GMT"}}})
	client := newClient(t, provider)
	receiver := webhookClient(t)
	eachReplaced(t, event, func(path string, before, after any) {
		name := fmt.Sprintf("%s: %v", path, after)
		provider.responses[0].body = encode(t, map[string]any{"object": "list", "data": []any{event, whole}, "has_more": false})
		got, _, _, err := client.ListEvents(t.Context(), time.Time{}, "")
		optional := !required("object id type data data.object data.object.object data.object.id data.object.payment_intent", path)
		if path == "id" && !allowed(path, before, after) {
			require.ErrorIs(t, err, payments.ErrUnreadable, name)
			return
		}
		require.NoError(t, err, name)
		require.Len(t, got, 2, name)
		require.Equal(t, "pi_1", got[1].IntentID, name)
		require.NotEmpty(t, got[0].ID, name)
		if optional {
			require.Equal(t, "evt_1 charge.refund.updated re_1 pi_1 true", fmt.Sprint(got[0].ID, " ", got[0].Type, " ", got[0].ObjectID, " ", got[0].IntentID, " ", got[0].NamesIntent), name)
		} else if !allowed(path, before, after) {
			require.False(t, got[0].NamesIntent && got[0].IntentID != "", name)
		}
		payload := []byte(encode(t, event))
		received, err := receiver.Event(payload, signed(payload, time.Now()))
		if optional {
			require.NoError(t, err, name)
			require.Equal(t, got[0], received, name)
		}
	})
}

// Each member that is decoded is in the objects above.
func TestMembers_all(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	sample, err := os.ReadFile("testdata/objects.json")
	require.NoError(t, err)
	sample = append(sample, `"error" "payment_intent"`...)
	decoded := 0
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, tag := range regexp.MustCompile("`json:\"([a-z_]+)").FindAllSubmatch(source, -1) {
			decoded++
			require.True(t, bytes.Contains(sample, fmt.Appendf(nil, "%q", tag[1])), "%s decodes %s", file, tag[1])
		}
	}
	require.Greater(t, decoded, 40)
}
