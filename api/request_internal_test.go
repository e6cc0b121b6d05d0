package api

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/orders"
)

func TestCheckMediaType(t *testing.T) {
	t.Parallel()
	const contentType, encoding = "Content-Type", "Content-Encoding"
	for name, test := range map[string]struct {
		header http.Header // in addition to a Content-Type of JSON
		want   bool
	}{
		"JSON":                        {nil, true},
		"upper case":                  {http.Header{contentType: {"Application/Json"}}, true},
		"UTF-8":                       {http.Header{contentType: {"application/json;charset=utf-8"}}, true},
		"UTF-8 in quotes":             {http.Header{contentType: {`application/json; charset="UTF-8"`}}, true},
		"another parameter":           {http.Header{contentType: {"application/json; v=1"}}, true},
		"identity encoding":           {http.Header{encoding: {"Identity"}}, true},
		"no media type":               {http.Header{contentType: nil}, false},
		"empty media type":            {http.Header{contentType: {""}}, false},
		"form":                        {http.Header{contentType: {"application/x-www-form-urlencoded"}}, false},
		"text":                        {http.Header{contentType: {"text/json"}}, false},
		"other JSON type":             {http.Header{contentType: {"application/merge-patch+json"}}, false},
		"Latin-1":                     {http.Header{contentType: {"application/json; charset=iso-8859-1"}}, false},
		"empty charset":               {http.Header{contentType: {`application/json; charset=""`}}, false},
		"parameter without a value":   {http.Header{contentType: {"application/json; charset"}}, false},
		"two charsets":                {http.Header{contentType: {"application/json; charset=utf-8; charset=utf-16"}}, false},
		"two media types":             {http.Header{contentType: {"application/json, text/plain"}}, false},
		"two lines":                   {http.Header{contentType: {"application/json", "application/json"}}, false},
		"gzip":                        {http.Header{encoding: {"gzip"}}, false},
		"identity, then gzip":         {http.Header{encoding: {"identity", "gzip"}}, false},
		"identity and gzip, one line": {http.Header{encoding: {"identity, gzip"}}, false},
		"unknown encoding":            {http.Header{encoding: {"zip"}}, false},
	} {
		header := http.Header{contentType: {"application/json"}}
		for field, lines := range test.header {
			header[field] = lines
		}
		err := checkMediaType(header)
		switch {
		case test.want:
			require.NoError(t, err, name)
		case test.header[encoding] != nil:
			require.ErrorIs(t, err, errUnsupportedCoding, name)
		default:
			require.ErrorIs(t, err, errUnsupportedMedia, name)
			require.NotErrorIs(t, err, errUnsupportedCoding, name)
		}
	}
}

func TestBearerToken_headers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lines []string
		token string
	}{
		"Bearer":               {[]string{"Bearer ok_1"}, "ok_1"},
		"lower case":           {[]string{"bearer ok_1"}, "ok_1"},
		"upper case":           {[]string{"BEARER ok_1"}, "ok_1"},
		"scheme only":          {[]string{"Bearer"}, "no token"},
		"two spaces":           {[]string{"Bearer  ok_1"}, "ok_1"},
		"many spaces":          {[]string{"Bearer" + strings.Repeat(" ", 100) + "ok_1"}, "ok_1"},
		"two spaces, no token": {[]string{"Bearer  "}, "no token"},
		"two in one line":      {[]string{"Bearer ok_1, Bearer ok_1"}, "ok_1, Bearer ok_1"},
		"a parameter":          {[]string{"Bearer ok_1; v=1"}, "ok_1; v=1"},
		"in quotes":            {[]string{`Bearer "ok_1"`}, `"ok_1"`},
		"missing":              {nil, "no token"},
		"empty":                {[]string{""}, "no token"},
		"token only":           {[]string{"ok_1"}, "no token"},
		"Basic":                {[]string{"Basic ok_1"}, "no token"},
		"tab":                  {[]string{"Bearer\tok_1"}, "no token"},
		"two lines":            {[]string{"Bearer ok_1", "Bearer ok_1"}, "no token"},
		"two lines, one empty": {[]string{"", "Bearer ok_1"}, "no token"},
	} {
		token, err := bearerToken(http.Header{"Authorization": test.lines})
		if test.token == "no token" {
			require.ErrorIs(t, err, accounts.ErrUnauthorized, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, test.token, token, name) // accounts rejects a malformed one
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
		"limit=-1":                     {"/limit", out},
		"limit=":                       {"/limit", format},
		"limit":                        {"/limit", format},
		"limit=ten":                    {"/limit", format},
		"limit=1.0":                    {"/limit", format},
		"limit=010":                    {"/limit", format},
		"limit=%2B5":                   {"/limit", format},
		"limit=99999999999999999999":   {"/limit", out},
		"limit=5&limit=5":              {"/limit", double},
		"after=":                       {"/after", format},
		"after=" + strings.ToUpper(id): {"/after", format},
		"after=" + id + "%00":          {"/after", format},
		"after=" + id + "&after=" + id: {"/after", double},
		"after=" + url.QueryEscape("' OR 1=1 --"): {"/after", format},
		"limit=0&after=x":                         {"/limit", out, "/after", format},
		"Limit=5":                                 {"", unknown},
		"page=2":                                  {"", unknown},
		"limit=5;after=x":                         {"", format},
		"limit=%zz":                               {"", format},
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
