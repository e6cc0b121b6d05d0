package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/httpjson"
)

func TestParsePage_parameters(t *testing.T) {
	t.Parallel()
	const id = "3eeb7e96-e59c-840f-9cb1-a089daba079f"
	for query, limit := range map[string]int{"": 20, "limit=100&after=" + id: 100} {
		page, err := parsePage(query, "reference")
		require.NoError(t, err, query)
		require.Equal(t, limit, page.Limit, query)
	}
	const format, out, unknown, double = httpjson.CodeInvalidFormat, httpjson.CodeOutOfRange, httpjson.CodeUnknownParameter, httpjson.CodeDuplicateParameter
	for query, want := range map[string][]string{ // pointer and code of each error
		"limit=0":                      {"/limit", out},
		"limit=101":                    {"/limit", out},
		"limit":                        {"/limit", format},
		"limit=010":                    {"/limit", format},
		"limit=99999999999999999999":   {"/limit", out},
		"limit=5&limit=5":              {"/limit", double},
		"after=" + strings.ToUpper(id): {"/after", format},
		"limit=0&after=x":              {"/limit", out, "/after", format},
		"reference=a&reference=a":      {"/reference", double},
		"Limit=5":                      {"", unknown},
		"limit=5;after=x":              {"", format},
		"limit=%zz":                    {"", format},
	} {
		_, err := parsePage(query, "reference")
		problem := problemOf(err)
		require.Equal(t, "/problems/validation-failed", problem.Type, query)
		var got []string
		for _, e := range problem.Errors {
			got = append(got, e.Pointer, e.Code)
		}
		require.Equal(t, want, got, query)
	}
}

func TestReadPreferences_forms(t *testing.T) {
	t.Parallel()
	async := preferences{respondAsync: true}
	wait := func(seconds int) preferences { return preferences{wait: time.Duration(seconds) * time.Second} }
	both := preferences{respondAsync: true, wait: 10 * time.Second}
	for name, test := range map[string]struct {
		lines []string
		want  preferences
	}{
		"none":                    {nil, preferences{}},
		"respond-async":           {[]string{"respond-async"}, async},
		"with a value":            {[]string{"respond-async=no"}, preferences{}},
		"wait":                    {[]string{"wait=20"}, wait(20)},
		"upper case, white space": {[]string{" \tWAIT = 20 "}, wait(20)},
		"quoted":                  {[]string{`wait="20"`}, wait(20)},
		"above the maximum":       {[]string{"wait=31"}, wait(30)},
		"without a value":         {[]string{"wait"}, preferences{}},
		"both":                    {[]string{"respond-async, wait=10"}, both},
		"the first wait counts":   {[]string{"wait=5, wait=10"}, wait(5)},
		"parameters are dropped":  {[]string{"wait=10; a=b ; c, respond-async;d"}, both},
		"unknown ones":            {[]string{`return=minimal, wait=10; x, handling="lenient", respond-async, priority=1`}, both},
	} {
		require.Equal(t, test.want, readPreferences(http.Header{"Prefer": test.lines}), name)
	}
}
