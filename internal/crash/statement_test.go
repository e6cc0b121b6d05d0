package crash_test

import (
	"regexp"
	"strings"
)

// question is what a child sends in one round trip.
type question struct{ prepares, executes []string }

// name is empty for a question that is no part of the flow.
func (q question) name() string {
	switch {
	case len(q.executes) == 1 && q.executes[0] == "":
		return "" // the pool's ping is a comment
	case len(q.executes) > 0:
		return strings.Join(q.executes, "; ")
	case len(q.prepares) > 0:
		return "prepare " + strings.Join(q.prepares, "; ")
	default:
		return "close" // a statement that is no longer needed
	}
}

var (
	comment     = regexp.MustCompile(`--.*`)
	verb        = regexp.MustCompile(`(?i)\b(INSERT INTO|UPDATE|DELETE FROM|FROM)\s+([a-z_]+)`)
	setList     = regexp.MustCompile(`(?is)\bSET\b(.*?)\b(?:WHERE|FROM)\b`)
	setColumn   = regexp.MustCompile(`(?m)^\s*([a-z_]+)\s*=`)
	transaction = regexp.MustCompile(`(?i)^(BEGIN|COMMIT|ROLLBACK)`)
)

// summary is a statement as people speak of it: what it does to which table, and
// which columns it sets.
func summary(query string) string {
	query = strings.TrimSpace(comment.ReplaceAllString(query, ""))
	if word := transaction.FindString(query); word != "" {
		return strings.ToUpper(word)
	}
	found := verb.FindStringSubmatch(query)
	if found == nil {
		return query
	}
	what, table := strings.ToUpper(found[1]), found[2]
	if what == "FROM" {
		what = "SELECT"
	}
	text := what + " " + table
	if list := setList.FindStringSubmatch(query); what == "UPDATE" && list != nil {
		var columns []string
		for _, column := range setColumn.FindAllStringSubmatch("\n"+list[1], -1) {
			columns = append(columns, column[1])
		}
		text += " SET " + strings.Join(columns, ", ")
	}
	return text
}
