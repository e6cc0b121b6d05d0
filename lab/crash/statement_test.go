package crash_test

import (
	"regexp"
	"slices"
	"strings"
)

// request is what a child sends to PostgreSQL in one round trip.
type request struct{ prepares, executes []string } // summaries of the statements

// name returns the name of the boundary, or "" for a request outside of the flow.
func (r request) name() string {
	switch {
	case len(r.executes) == 1 && r.executes[0] == "", // the pool's ping, which is a comment
		slices.ContainsFunc(slices.Concat(r.executes, r.prepares), readiness.MatchString):
		return ""
	case len(r.executes) > 0:
		return strings.Join(r.executes, "; ")
	case len(r.prepares) > 0:
		return "prepare " + strings.Join(r.prepares, "; ")
	default:
		return "close" // of a prepared statement
	}
}

// readiness matches the checks of the monitor, which run each second, and of new sessions.
var readiness = regexp.MustCompile(`transaction_read_only|has_table_privilege|goose_db_version`)

var (
	comment     = regexp.MustCompile(`--.*`)
	verb        = regexp.MustCompile(`(?i)\b(INSERT INTO|UPDATE|DELETE FROM|FROM)\s+([a-z_]+)`)
	setList     = regexp.MustCompile(`(?is)\bSET\b(.*?)\b(?:WHERE|FROM)\b`)
	setColumn   = regexp.MustCompile(`(?m)(?:^|,)\s*([a-z_]+)\s*=`)
	transaction = regexp.MustCompile(`(?i)^(BEGIN|COMMIT|ROLLBACK)`)
)

func summary(query string) string {
	query = strings.TrimSpace(comment.ReplaceAllString(query, ""))
	if word := transaction.FindString(query); word != "" {
		return strings.ToUpper(word)
	}
	found := verb.FindStringSubmatch(query)
	if found == nil {
		return query
	}
	action, table := strings.ToUpper(found[1]), found[2]
	if action == "FROM" {
		action = "SELECT"
	}
	text := action + " " + table
	if list := setList.FindStringSubmatch(query); action == "UPDATE" && list != nil {
		var columns []string
		for _, column := range setColumn.FindAllStringSubmatch("\n"+list[1], -1) {
			columns = append(columns, column[1])
		}
		text += " SET " + strings.Join(columns, ", ")
	}
	return text
}
