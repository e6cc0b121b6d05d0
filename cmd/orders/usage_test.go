package main_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	const overview = "An orders API that charges exactly once.\n"
	tests := map[string]struct {
		code   int
		stdout string // how it begins
		stderr string // all of it
		also   string // somewhere in stdout
	}{
		"-h":                         {stdout: overview, also: "  serve "},
		"--help":                     {stdout: overview},
		"help":                       {stdout: overview, also: "accounts create"},
		"help -h":                    {stdout: overview},
		"help help":                  {stdout: overview},
		"help env":                   {stdout: "  DATABASE_URL\n", also: "LOCK_TIMEOUT (default 90s)"},
		"demo -h":                    {stdout: "Usage: orders demo [flags]\n"},
		"dev -h":                     {stdout: "Usage: orders dev [flags]\n", also: "SMTP_URL"},
		"serve -h":                   {stdout: "Usage: orders serve [flags]\n", also: "-drain-notice"},
		"serve --help":               {stdout: "Usage: orders serve [flags]\n"},
		"worker -h":                  {stdout: "Usage: orders worker [flags]\n", also: "-once"},
		"worker --once -h":           {stdout: "Usage: orders worker [flags]\n"},
		"help worker":                {stdout: "Usage: orders worker [flags]\n", also: "RECEIPTS_FROM"},
		"migrate -h":                 {stdout: overview, also: "migrate down"},
		"help migrate":               {stdout: overview, also: "migrate status"},
		"migrate up -h":              {stdout: "Usage: orders migrate up [flags]\n"},
		"help migrate up":            {stdout: "Usage: orders migrate up [flags]\n"},
		"accounts -h":                {stdout: overview, also: "accounts create"},
		"accounts create -h":         {stdout: "Usage: orders accounts create [flags]\n", also: "-name"},
		"help accounts create":       {stdout: "Usage: orders accounts create [flags]\n"},
		"version":                    {stdout: "orders ", also: "go1."},
		"nope":                       {code: 2, stderr: `there is no command "nope"` + "\nSee orders help\n"},
		"help nope":                  {code: 2, stderr: `there is no command "nope"` + "\nSee orders help\n"},
		"--nope":                     {code: 2, stderr: `there is no command "--nope"` + "\nSee orders help\n"},
		"serve --port 80":            {code: 2, stderr: "flag provided but not defined: -port\nSee orders help serve\n"},
		"serve now":                  {code: 2, stderr: `orders serve does not take "now"` + "\nSee orders help serve\n"},
		"dev --once":                 {code: 2, stderr: "flag provided but not defined: -once\nSee orders help dev\n"},
		"demo -x":                    {code: 2, stderr: "flag provided but not defined: -x\nSee orders help demo\n"},
		"worker --every soon":        {code: 2, stderr: `invalid value "soon" for flag -every: parse error` + "\nSee orders help worker\n"},
		"worker --every 0s":          {code: 2, stderr: "--every 0s is not a positive duration\nSee orders help worker\n"},
		"migrate":                    {code: 2, stderr: "expected orders migrate up|down|status\nSee orders help migrate\n"},
		"migrate sideways":           {code: 2, stderr: "expected orders migrate up|down|status\nSee orders help migrate\n"},
		"migrate up now":             {code: 2, stderr: `orders migrate up does not take "now"` + "\nSee orders help migrate up\n"},
		"accounts":                   {code: 2, stderr: "expected orders accounts create\nSee orders help accounts\n"},
		"accounts create":            {code: 2, stderr: "orders accounts create needs --name\nSee orders help accounts create\n"},
		"accounts create --name":     {code: 2, stderr: "flag needs an argument: -name\nSee orders help accounts create\n"},
		"accounts create --name= x":  {code: 2, stderr: `orders accounts create does not take "x"` + "\nSee orders help accounts create\n"},
		"accounts create My_company": {code: 2, stderr: `orders accounts create does not take "My_company"` + "\nSee orders help accounts create\n"},
	}
	for line, test := range tests {
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
	t.Run("nothing", func(t *testing.T) {
		t.Parallel()
		code, stdout, stderr := run(t, []string{})
		require.Equal(t, 2, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "migrate up")
	})
}

// The overview is the first thing a person sees.
func TestUsage_fitsATerminal(t *testing.T) {
	t.Parallel()
	_, stdout, _ := run(t, []string{}, "help")
	for line := range strings.Lines(stdout) {
		require.LessOrEqual(t, len(line), 100, line)
	}
}
