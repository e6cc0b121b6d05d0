package main_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	const overview = "An orders API that charges exactly once.\n"
	for line, test := range map[string]struct {
		code   int
		stdout string // its beginning
		stderr string // all of it
		also   string // part of stdout
	}{
		"-h":                              {stdout: overview, also: "  serve "},
		"help env":                        {stdout: "  DATABASE_URL\n", also: "LOCK_TIMEOUT (default 90s)"},
		"dev -h":                          {stdout: "Usage: orders dev [flags]\n", also: "SMTP_URL"},
		"serve -h":                        {stdout: "Usage: orders serve [flags]\n", also: "-shutdown-delay"},
		"migrate down -h":                 {stdout: "Usage: orders migrate down [flags]\n", also: "-yes"},
		"help accounts keys":              {stdout: overview, also: "accounts keys list"},
		"keys show -h":                    {stdout: "Usage: orders keys show ID [flags]\n", also: "-account id"},
		"version":                         {stdout: "orders ", also: "go1."},
		"--version":                       {stdout: "orders ", also: "go1."},
		"nope":                            {code: 2, stderr: `there is no command "nope"` + "\nSee orders help\n"},
		"serve --port 80":                 {code: 2, stderr: "flag provided but not defined: -port\nSee orders help serve\n"},
		"worker --every 0s":               {code: 2, stderr: "--every 0s is not a positive duration\nSee orders help worker\n"},
		"completer --concurrency 0":       {code: 2, stderr: "--concurrency must be positive\nSee orders help completer\n"},
		"reconcile --since 1x":            {code: 2, stderr: "invalid value \"1x\" for flag -since: parse error\nSee orders help reconcile\n"},
		"keys list --limit many":          {code: 2, stderr: "invalid value \"many\" for flag -limit: parse error\nSee orders help keys list\n"},
		"migrate down --yes=perhaps":      {code: 2, stderr: "invalid boolean value \"perhaps\" for -yes: parse error\nSee orders help migrate down\n"},
		"keys list --limit 0":             {code: 2, stderr: "--limit must be positive\nSee orders help keys list\n"},
		"keys show":                       {code: 2, stderr: "orders keys show requires ID\nSee orders help keys show\n"},
		"keys show KEY OTHER":             {code: 2, stderr: `orders keys show does not take "OTHER"` + "\nSee orders help keys show\n"},
		"keys retry KEY":                  {code: 2, stderr: "orders keys retry requires --reason\nSee orders help keys retry\n"},
		"keys retry KEY --by= --reason x": {code: 2, stderr: "orders keys retry requires --by\nSee orders help keys retry\n"},
		"accounts create":                 {code: 2, stderr: "orders accounts create requires --name\nSee orders help accounts create\n"},
		"accounts keys list --account x":  {code: 2, stderr: "invalid value \"x\" for flag -account: invalid UUID length: 1\nSee orders help accounts keys list\n"},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := run(t, []string{}, strings.Fields(line)...)
			require.Equal(t, test.code, code)
			if test.code == 0 {
				require.True(t, strings.HasPrefix(stdout, test.stdout), stdout)
				require.Contains(t, stdout, test.also)
				require.Empty(t, stderr)
				return
			}
			require.Equal(t, "orders: wrong usage: "+test.stderr, stderr)
			require.Empty(t, stdout)
		})
	}
	for line, want := range map[string]string{"": "migrate up", "keys": "keys resolve", "accounts keys": "accounts keys revoke"} {
		t.Run("no command after "+line, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := run(t, []string{}, strings.Fields(line)...)
			require.Equal(t, 2, code)
			require.Empty(t, stdout)
			require.Contains(t, stderr, want)
			require.Contains(t, stderr, "orders: wrong usage: no command given\nSee orders help"+strings.TrimRight(" "+line, " ")+"\n")
		})
	}
}

func TestUsage_width(t *testing.T) {
	t.Parallel()
	_, stdout, _ := run(t, []string{}, "help")
	for line := range strings.Lines(stdout) {
		require.LessOrEqual(t, len(line), 100, line)
	}
}
