package stripetest_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

const eventsPath = "/v1/events"

func TestEvents(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	s := start(t, stripetest.Options{Clock: func() time.Time { return now }, EventDelay: time.Minute})
	paid := s.create(visa)
	refund, err := s.RefundAtDashboard(paid, 500, "expired_uncaptured_charge")
	require.NoError(t, err)
	found, _ := idsOf(t, s.get(eventsPath))
	require.Empty(t, found, "late by a minute")
	require.Equal(t, "Tue, 14 Nov 2023 22:13:20 GMT", s.get(eventsPath).header.Get("Date"))

	s.Advance(10 * time.Minute)
	require.NoError(t, s.EditRefund(refund, func(re *stripetest.Refund) { re.Metadata["staff"] = "ada" }))
	dispute, err := s.Dispute(paid, 700, "fraudulent", "warning_needs_response")
	require.NoError(t, err)
	s.Advance(10 * time.Minute)
	require.NoError(t, s.UpdateDispute(dispute, "warning_closed"))
	s.Advance(10 * time.Minute)

	var ids []string // newest first
	about := map[string]string{}
	s.EditEvents(func(e *stripetest.Event) {
		require.Equal(t, paid, e.IntentID)
		ids = append([]string{e.ID}, ids...)
		about[e.Type] += e.ObjectID
	})
	require.Equal(t, map[string]string{
		"charge.refunded": s.Charges()[0].ID, "charge.refund.updated": refund, "charge.dispute.created": dispute, "charge.dispute.closed": dispute,
	}, about)
	require.Len(t, ids, 4)
	slices.Sort(ids[1:3]) // of one second
	for name, test := range map[string]struct {
		query string
		want  []string
		more  bool
	}{
		"all":           {"", ids, false},
		"first page":    {"limit=2", ids[:2], true},
		"next page":     {"limit=2&starting_after=" + ids[1], ids[2:], false},
		"after a time":  {"created[gte]=1700000600", ids[:3], false},
		"types":         {"types[0]=charge.dispute.closed&types[1]=charge.refunded", []string{ids[0], ids[3]}, false},
		"another type":  {"types[0]=charge.succeeded", nil, false},
		"after another": {"types[0]=charge.refunded&starting_after=" + ids[3], nil, false},
	} {
		found, more := idsOf(t, s.get(eventsPath+"?"+test.query))
		require.Equal(t, test.want, found, name)
		require.Equal(t, test.more, more, name)
	}

	payload, _, err := s.Event("whsec_fake", "charge.dispute.closed", dispute)
	require.NoError(t, err)
	require.Equal(t, ids[0], reply{body: string(payload)}.field("id"), "a delivery has the event's id")
	created, _, err := s.Event("whsec_fake", "charge.dispute.created", dispute)
	require.NoError(t, err)
	require.Equal(t, "warning_needs_response", reply{body: string(created)}.field("data.object.status"), "the status at that time")

	s.EditEvents(func(e *stripetest.Event) {
		switch e.ID {
		case ids[0]:
			e.Times = 2
		case ids[3]:
			e.Times = 0
		}
	})
	s.ForeignEvents(1)
	s.Advance(time.Minute)
	found, _ = idsOf(t, s.get(eventsPath))
	require.Equal(t, append([]string{ids[0], ids[0]}, ids[1:3]...), found[1:])

	s.Advance(30*24*time.Hour - 15*time.Minute)
	requireError(t, s.get(eventsPath+"?starting_after="+ids[1]), http.StatusBadRequest, "resource_missing", "starting_after")
	requireError(t, s.get(eventsPath+"?type=charge.refunded"), http.StatusBadRequest, "parameter_unknown", "type")
	many := ""
	for i := range 21 {
		many += fmt.Sprintf("types[%d]=x&", i)
	}
	requireError(t, s.get(eventsPath+"?"+many), http.StatusBadRequest, "", "types")
	requireError(t, s.get(eventsPath+"?types[1]=x"), http.StatusBadRequest, "parameter_unknown", "types[1]")
}
