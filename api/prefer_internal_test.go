package api

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReadPreferences_forms(t *testing.T) {
	t.Parallel()
	async := preferences{respondAsync: true}
	wait := func(seconds int) preferences { return preferences{wait: time.Duration(seconds) * time.Second} }
	both := preferences{respondAsync: true, wait: 10 * time.Second}
	for name, test := range map[string]struct {
		lines []string
		want  preferences
	}{
		"none":                               {nil, preferences{}},
		"respond-async":                      {[]string{"respond-async"}, async},
		"with an empty value":                {[]string{`respond-async=""`}, async},
		"with a value":                       {[]string{"respond-async=no"}, preferences{}},
		"wait":                               {[]string{"wait=20"}, wait(20)},
		"upper case, white space":            {[]string{" \tWAIT = 20 "}, wait(20)},
		"quoted, each of it escaped":         {[]string{`wait="\2\0"`}, wait(20)},
		"no time":                            {[]string{"wait=0"}, preferences{}},
		"maximum":                            {[]string{"wait=30"}, wait(30)},
		"above the maximum":                  {[]string{"wait=31"}, wait(30)},
		"out of range":                       {[]string{"wait=99999999999999999999999"}, wait(30)},
		"without a value":                    {[]string{"wait"}, preferences{}},
		"signed":                             {[]string{"wait=+1"}, preferences{}},
		"both":                               {[]string{"respond-async, wait=10"}, both},
		"with empty elements":                {[]string{",, wait=10 ,, respond-async,"}, both},
		"the first wait counts":              {[]string{"wait=5, wait=10"}, wait(5)},
		"on an earlier line":                 {[]string{"wait=5", "WAIT=10"}, wait(5)},
		"the first counts, although invalid": {[]string{"wait=soon, wait=10"}, preferences{}},
		"parameters are dropped":             {[]string{"wait=10; a=b ; c, respond-async;d"}, both},
		"unknown ones":                       {[]string{`return=minimal, wait=10; x, handling="lenient", respond-async, priority=1`}, both},
		"commas in quotes":                   {[]string{`a="x, wait=5", wait=10; b=", wait=6", respond-async`}, both},
		"escaped quotes in quotes":           {[]string{`a="x\", wait=5", wait=10, respond-async`}, both},
		"unterminated quote":                 {[]string{`a="x, wait=5`, "wait=10, respond-async"}, both},
		"text after a quoted value":          {[]string{`wait="5"5, respond-async`}, async},
		"no name":                            {[]string{"=5, respond-async"}, async},
		"name with a space":                  {[]string{"respond async, wait=10"}, wait(10)},
		"a name that is quoted":              {[]string{`"wait"=5, respond-async`}, async},
		"twice equal":                        {[]string{"wait==5, respond-async"}, async},
		"first respond-async counts":         {[]string{"respond-async, respond-async=no"}, async},
	} {
		require.Equal(t, test.want, readPreferences(http.Header{"Prefer": test.lines}), name)
	}
}

func TestPreferences_applied(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]preferences{
		"":                       {},
		"respond-async":          {respondAsync: true},
		"wait=30":                {wait: maxWait},
		"respond-async, wait=10": {respondAsync: true, wait: 10 * time.Second},
	} {
		header := http.Header{}
		p.write(header)
		require.Equal(t, want, header.Get("Preference-Applied"))
		if want == "" {
			require.Empty(t, header)
		}
	}
}
