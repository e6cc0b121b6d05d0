//go:build vacuum

package contract_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/daveshanley/vacuum/model"
	"github.com/daveshanley/vacuum/motor"
	"github.com/daveshanley/vacuum/rulesets"
	"github.com/daveshanley/vacuum/statistics"
	"github.com/stretchr/testify/require"
)

// minScore is the lowest score by vacuum's recommended rules, of 100. vacuum takes
// minutes to build, hence the build tag: make -C lab vacuum runs this test.
const minScore = 90

// JSON members are in snake_case, as in Stripe's API, so the rule for camel case is off.
func TestVacuum_score(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile(current)
	require.NoError(t, err)
	score, violations := vacuum(t, document)
	t.Logf("%d of 100", score)
	require.GreaterOrEqual(t, score, minScore, "%v", violations)
}

func TestVacuum_scoreFalls(t *testing.T) {
	t.Parallel()
	score, violations := vacuum(t, []byte("openapi: 3.1.0\ninfo: {title: T, version: 1.0.0}\npaths:\n  /a_b: {get: {responses: {'200': {description: OK}}}}\n"))
	require.Less(t, score, minScore)
	require.NotEmpty(t, violations)
}

// vacuum returns the score of a document and its violations.
func vacuum(t *testing.T, document []byte) (score int, violations []string) {
	t.Helper()
	rules := rulesets.BuildDefaultRuleSets().GenerateOpenAPIRecommendedRuleSet()
	delete(rules.Rules, "camel-case-properties")
	result := motor.ApplyRulesToRuleSet(&motor.RuleSetExecution{RuleSet: rules, Spec: document})
	require.Empty(t, result.Errors)
	for _, r := range result.Results {
		violations = append(violations, fmt.Sprintf("%s: %s %s", r.Rule.Id, r.Path, r.Message))
	}
	slices.Sort(violations)
	return statistics.CreateReportStatistics(result.Index, result.SpecInfo, model.NewRuleResultSet(result.Results)).OverallScore, violations
}
