package reconcile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// newForm gives objects, by their ids, a status of another type, as a later form of Stripe's API might.
type newForm struct {
	base http.RoundTripper
	ids  map[any]bool
}

func (n newForm) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := n.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(resp.Body)
	var body map[string]any
	if err := errors.Join(err, resp.Body.Close(), json.Unmarshal(text, &body)); err != nil {
		return nil, err
	}
	listed, _ := body["data"].([]any)
	for _, object := range append(listed, body) {
		if object := object.(map[string]any); n.ids[object["id"]] {
			object["status"] = map[string]any{"state": object["status"]}
		}
	}
	text, err = json.Marshal(body)
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return resp, err
}

// An intent or a refund that this program cannot read is reported, and hides no other one.
func TestRun_unreadableObjects(t *testing.T) {
	t.Parallel()
	f := newOldFixture(t, paid, charge(), sql("UPDATE orders SET amount = amount + 1"))
	refund := f.insertRefund()
	f.age()
	const mismatch = "amount_mismatch: intent succeeded, order paid, response 201"
	require.Contains(t, f.discrepancies(), mismatch)

	// Also of another program, and one whose intent is unreadable.
	foreign := f.insertForeignIntent()
	f.transport.base = newForm{f.transport.base, map[any]bool{f.intentID(): true, foreign: true, refund: true}}
	for range 2 {
		report := f.reconcile(true)
		words, named := inWords(report), map[string]bool{}
		require.Contains(t, words, "duplicate_charge: intent succeeded, order partially_refunded, response 201", "of the same page")
		require.Contains(t, words, mismatch, "an earlier finding stays until the intent can be read")
		for _, d := range report.Discrepancies {
			if d.Kind != "object_unreadable" {
				continue
			}
			var data map[string]string
			require.NoError(t, json.Unmarshal(d.Data, &data))
			named[data["object_id"]] = true
		}
		require.Equal(t, map[string]bool{f.intentID(): true, foreign: true, refund: true}, named)
		require.NotZero(t, report.Open())
	}
	require.Zero(t, f.calls()[cancel])
}
