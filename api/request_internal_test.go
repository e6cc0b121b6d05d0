package api

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/orders"
)

func TestCheckMediaType(t *testing.T) {
	t.Parallel()
	for want, headers := range map[error][]http.Header{
		nil: {
			{"Content-Type": {"Application/Json"}},
			{"Content-Type": {`application/json; charset="UTF-8"`}},
			{"Content-Type": {"application/json; v=1"}},
			{"Content-Type": {"application/json"}, "Content-Encoding": {"Identity"}},
		},
		errUnsupportedMedia: {
			{},
			{"Content-Type": {""}},
			{"Content-Type": {"text/json"}},
			{"Content-Type": {"application/json; charset=iso-8859-1"}},
			{"Content-Type": {`application/json; charset=""`}},
			{"Content-Type": {"application/json; charset=utf-8; charset=utf-16"}},
			{"Content-Type": {"application/json, text/plain"}},
			{"Content-Type": {"application/json", "application/json"}},
		},
		errUnsupportedCoding: {
			{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}},
			{"Content-Type": {"application/json"}, "Content-Encoding": {"identity", "gzip"}},
		},
	} {
		for _, header := range headers {
			require.Equal(t, want, checkMediaType(header), "%v", header)
		}
	}
}

func TestBearerToken_headers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		token string // "" if the header is rejected
		lines []string
	}{
		{"ok_1", []string{"bearer ok_1"}},
		{"ok_1", []string{"Bearer" + strings.Repeat(" ", 100) + "ok_1"}},
		{"ok_1, Bearer ok_1", []string{"Bearer ok_1, Bearer ok_1"}}, // accounts rejects a malformed token
		{"", nil},
		{"", []string{""}},
		{"", []string{"Bearer"}},
		{"", []string{"Bearer  "}},
		{"", []string{"Basic ok_1"}},
		{"", []string{"Bearer\tok_1"}},
		{"", []string{"", "Bearer ok_1"}},
	} {
		token, err := bearerToken(http.Header{"Authorization": test.lines})
		require.Equal(t, test.token, token, "%q", test.lines)
		require.Equal(t, test.token == "", errors.Is(err, accounts.ErrUnauthorized), "%q", test.lines)
	}
}

func TestParsePage_parameters(t *testing.T) {
	t.Parallel()
	const id = "3eeb7e96-e59c-840f-9cb1-a089daba079f"
	for query, want := range map[string]struct {
		limit int
		after string
	}{
		"":                      {defaultPage, uuid.Nil.String()},
		"limit=1":               {1, uuid.Nil.String()},
		"limit=100&after=" + id: {100, id},
	} {
		limit, after, err := parsePage(query, "an order")
		require.NoError(t, err, query)
		require.Equal(t, want.limit, limit, query)
		require.Equal(t, want.after, after.String(), query)
	}
	const format, out, unknown, double = orders.CodeInvalidFormat, orders.CodeOutOfRange, orders.CodeUnknownParameter, orders.CodeDuplicateParameter
	for query, want := range map[string][]string{ // pointer and code of each error
		"limit=0":                      {"/limit", out},
		"limit=101":                    {"/limit", out},
		"limit":                        {"/limit", format},
		"limit=ten":                    {"/limit", format},
		"limit=010":                    {"/limit", format},
		"limit=99999999999999999999":   {"/limit", out},
		"limit=5&limit=5":              {"/limit", double},
		"after=" + strings.ToUpper(id): {"/after", format},
		"after=" + id + "&after=" + id: {"/after", double},
		"limit=0&after=x":              {"/limit", out, "/after", format},
		"Limit=5":                      {"", unknown},
		"limit=5;after=x":              {"", format},
		"limit=%zz":                    {"", format},
	} {
		_, _, err := parsePage(query, "an order")
		problem := problemOf(err)
		require.Equal(t, "validation-failed", problem.slug, query)
		var got []string
		for _, e := range problem.Errors {
			got = append(got, e.Pointer, e.Code)
		}
		require.Equal(t, want, got, query)
	}
}
