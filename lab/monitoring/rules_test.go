package monitoring_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func TestRules_knownMetrics(t *testing.T) {
	t.Parallel()
	metrics := allMetrics(t)
	for _, rule := range rules(t) {
		requireKnown(t, metrics, rule.Expr)
	}
}

func TestDashboard_knownMetrics(t *testing.T) {
	t.Parallel()
	metrics := allMetrics(t)
	for _, expressions := range dashboard(t) {
		for _, expression := range expressions {
			requireKnown(t, metrics, expression)
		}
	}
}

// An incomplete or too long list of metrics would hide errors.
func TestAllMetrics_unknown(t *testing.T) {
	t.Parallel()
	metrics := allMetrics(t)
	require.NotContains(t, metrics, "orders_request_total")
	require.NotContains(t, metrics["orders_requests_total"], "route")
	require.NotContains(t, metrics, "orders_http_request_duration_seconds")
	require.Contains(t, metrics["orders_http_request_duration_seconds_bucket"], "le")
}

func TestScrapeConfiguration(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(scrapeFile)
	require.NoError(t, err)
	var config struct {
		Jobs []struct {
			Name    string `yaml:"job_name"`
			Targets []struct {
				Targets []string
				Labels  map[string]string
			} `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
		Rules []string `yaml:"rule_files"`
	}
	require.NoError(t, yaml.Unmarshal(content, &config))
	require.Equal(t, []string{filepath.Base(rulesFile)}, config.Rules)
	require.Len(t, config.Jobs, 1)
	require.Equal(t, "orders", config.Jobs[0].Name)
	for _, target := range config.Jobs[0].Targets {
		require.Len(t, target.Targets, 1)
		require.NotEmpty(t, target.Labels["command"])
	}
}

func TestRules_runbook(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(runbookFile)
	require.NoError(t, err)
	entries := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^## (Orders\w+)$`).FindAllStringSubmatch(string(content), -1) {
		entries[heading[1]] = true
	}
	for _, rule := range rules(t) {
		require.Contains(t, entries, rule.Alert)
		delete(entries, rule.Alert)
		require.True(t, strings.HasSuffix(rule.Annotations["runbook_url"], "/docs/runbook.md#"+strings.ToLower(rule.Alert)), rule.Alert)
		require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
		require.Contains(t, []string{"page", "ticket"}, rule.Labels["severity"], rule.Alert)
	}
	require.Empty(t, entries, "the runbook has entries without an alert")
}
