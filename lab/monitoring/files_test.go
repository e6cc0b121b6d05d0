// Package monitoring_test checks the Prometheus rules and the Grafana dashboard with
// Prometheus's parser and engine: metrics and labels exist, each alert has a runbook
// entry, and it fires only when it should. It is in this module because its dependencies
// take long to build: make contract.
package monitoring_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

const (
	scrapeFile    = "../../deploy/prometheus/prometheus.yml"
	rulesFile     = "../../deploy/prometheus/rules.yml"
	dashboardFile = "../../deploy/grafana/orders.json"
	runbookFile   = "../../docs/runbook.md"
	metricsFile   = "../../internal/metrics/testdata/metrics.txt"
)

func rules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	content, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	groups, errs := rulefmt.Parse(content, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	require.Empty(t, errs)
	var all []rulefmt.Rule
	for _, group := range groups.Groups {
		all = append(all, group.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

// dashboard returns the queries of the dashboard, by panel.
func dashboard(t *testing.T) map[string][]string {
	t.Helper()
	content, err := os.ReadFile(dashboardFile)
	require.NoError(t, err)
	var board struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
		Annotations struct{ List []struct{ Name, Expr string } }
	}
	require.NoError(t, json.Unmarshal(content, &board))
	queries := map[string][]string{}
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			queries[panel.Title] = append(queries[panel.Title], target.Expr)
		}
		if panel.Type != "row" {
			require.NotEmpty(t, queries[panel.Title], "%s has no query", panel.Title)
		}
	}
	for _, annotation := range board.Annotations.List {
		queries[annotation.Name] = append(queries[annotation.Name], annotation.Expr)
	}
	return queries
}

// allMetrics returns the labels of each metric, including those of Prometheus and its
// client library.
func allMetrics(t *testing.T) map[string][]string {
	t.Helper()
	content, err := os.ReadFile(metricsFile)
	require.NoError(t, err)
	found := map[string][]string{
		"up":                            nil,
		"ALERTS":                        {"alertname", "alertstate"},
		"process_resident_memory_bytes": nil,
	}
	line := regexp.MustCompile(`^(orders_\w+)\{([\w,]*)\} (\w+): `)
	for text := range strings.Lines(string(content)) {
		match := line.FindStringSubmatch(text)
		require.NotNil(t, match, text)
		own := strings.FieldsFunc(match[2], func(r rune) bool { return r == ',' })
		if match[3] == "histogram" {
			found[match[1]+"_bucket"] = append(slices.Clone(own), "le")
			found[match[1]+"_count"], found[match[1]+"_sum"] = own, own
			continue
		}
		found[match[1]] = own
	}
	require.Contains(t, found, "orders_requests_total")
	return found
}

var scrapeLabels = []string{"job", "instance", "command"}

// requireKnown parses an expression and checks its metrics and labels.
func requireKnown(t *testing.T, metrics map[string][]string, expression string) {
	t.Helper()
	expression = strings.ReplaceAll(expression, "$__rate_interval", "5m")
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	require.NoError(t, err, expression)
	named := 0
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.VectorSelector:
			named++
			require.Contains(t, metrics, node.Name, expression)
			for _, matcher := range node.LabelMatchers {
				if matcher.Name != model.MetricNameLabel {
					require.Contains(t, slices.Concat(metrics[node.Name], scrapeLabels), matcher.Name, expression)
				}
			}
		case *parser.AggregateExpr:
			require.False(t, node.Without, "name the labels to keep: %s", expression)
			var inside []string
			parser.Inspect(node.Expr, func(node parser.Node, _ []parser.Node) error {
				if selector, ok := node.(*parser.VectorSelector); ok {
					inside = append(inside, metrics[selector.Name]...)
				}
				return nil
			})
			require.Subset(t, slices.Concat(inside, scrapeLabels), node.Grouping, expression)
		}
		return nil
	})
	require.Positive(t, named, expression)
}
