package docscheck_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/lab/docscheck"
)

const rulesPage = "docs/rules.md"

var (
	rule     = regexp.MustCompile(`^## <a id="r(\d+)"></a>.+ \(R(\d+)\)\n`)
	codeLink = regexp.MustCompile("\\[`([\\w.]+)`\\]\\(([^)]+)\\)")
	citation = regexp.MustCompile(`\bR\d+\b`)
)

func TestRules(t *testing.T) {
	t.Parallel()
	wrong, err := checkRules(root)
	require.NoError(t, err)
	require.Empty(t, wrong, strings.Join(wrong, "\n"))
}

// checkRules returns the wrong numbers: of a rule that the page does not have, of a linked
// declaration that its file does not have, and of a place that does not cite its rule.
func checkRules(root fs.FS) (wrong []string, err error) {
	page, err := fs.ReadFile(root, rulesPage)
	if err != nil {
		return nil, err
	}
	known, current, last := map[string]bool{}, "", 0 // a number may be reserved for a rule to come
	for line := range strings.Lines(string(page)) {
		if heading := rule.FindStringSubmatch(line); heading != nil {
			number, _ := strconv.Atoi(heading[2])
			current = "R" + heading[2]
			if heading[1] != heading[2] || number <= last {
				wrong = append(wrong, fmt.Sprintf("%s is at the heading of R%s, with the anchor r%s", current, heading[2], heading[1]))
			}
			last, known[current] = number, true
		}
		for _, link := range codeLink.FindAllStringSubmatch(line, -1) {
			name, file := link[1], path.Join(path.Dir(rulesPage), link[2])
			declared, err := declarationOf(root, file, name)
			switch {
			case err != nil:
				wrong = append(wrong, fmt.Sprintf("%s links %s: %v", current, name, err))
			case strings.HasPrefix(line, "Place:") && !slices.Contains(citation.FindAllString(declared, -1), current):
				wrong = append(wrong, fmt.Sprintf("%s is enforced by %s in %s, which does not cite it", current, name, file))
			}
		}
	}
	err = docscheck.Walk(root, func(file string, content []byte) error {
		if !slices.Contains([]string{".go", ".sql", ".md", ".yaml", ".yml"}, path.Ext(file)) {
			return nil
		}
		for _, number := range citation.FindAllString(string(content), -1) {
			if !known[number] {
				wrong = append(wrong, fmt.Sprintf("%s cites %s, which does not exist", file, number))
			}
		}
		return nil
	})
	return wrong, err
}

// declarationOf returns a Go declaration with its comment, or the paragraphs of an SQL file
// that contain the name.
func declarationOf(root fs.FS, file, name string) (declared string, err error) {
	source, err := fs.ReadFile(root, file)
	if err != nil {
		return "", err
	}
	if path.Ext(file) == ".go" {
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, file, source, parser.ParseComments)
		if err != nil {
			return "", err
		}
		for _, declaration := range parsed.Decls {
			if found, comment := describe(declaration); found == name {
				declared = comment.Text() + string(source[files.Position(declaration.Pos()).Offset:files.Position(declaration.End()).Offset])
			}
		}
	} else {
		for paragraph := range strings.SplitSeq(string(source), "\n\n") {
			if slices.Contains(strings.Fields(paragraph), name) {
				declared += paragraph
			}
		}
	}
	if declared == "" {
		return "", fmt.Errorf("%s does not declare it", file)
	}
	return declared, nil
}

func TestRules_wrong(t *testing.T) {
	t.Parallel()
	right := map[string]string{
		rulesPage: "## <a id=\"r1\"></a>Claim (R1)\n\nPlace: [`claimSQL`](../a/a.go), [`key_unique`](../a/a.sql)\n\n" +
			"## <a id=\"r2\"></a>Fence (R2)\n\nNot for [`run.release`](../a/a.go).\n\nPlace: [`run.commit`](../a/a.go)\n",
		"a/a.go": "package a\n\n// claimSQL claims (R1).\nconst claimSQL = ``\n\ntype run struct{}\n\n" +
			"func (r *run) commit() { /* the fence (R2) */ }\n\nfunc (run) release() {}\n",
		"a/a.sql": "CREATE TABLE a ();\n\n-- One claim succeeds (R1).\nCREATE UNIQUE INDEX key_unique ON a;\n",
	}
	unknown := fmt.Sprintf("R%d", 3)
	tests := map[string]struct{ file, old, new, wrong string }{
		"right":                      {},
		"a number without a rule":    {"a/a.go", "claims (R1)", "claims (R1, " + unknown + ")", "a/a.go cites " + unknown + ", which does not exist"},
		"the number of another rule": {"a/a.go", "claims (R1)", "claims (R2)", "R1 is enforced by claimSQL in a/a.go, which does not cite it"},
		"a citation is removed":      {"a/a.go", "the fence (R2) */", "the fence */", "R2 is enforced by run.commit in a/a.go, which does not cite it"},
		"a citation in SQL":          {"a/a.sql", "succeeds (R1)", "succeeds", "R1 is enforced by key_unique in a/a.sql, which does not cite it"},
		"a function is renamed":      {"a/a.go", "commit() {", "end() {", "R2 links run.commit: a/a.go does not declare it"},
		"an exception is renamed":    {"a/a.go", "release()", "free()", "R2 links run.release: a/a.go does not declare it"},
		"an index is renamed":        {"a/a.sql", "key_unique", "key_uniq", "R1 links key_unique: a/a.sql does not declare it"},
		"a file is moved":            {rulesPage, "(../a/a.sql)", "(../b.sql)", "R1 links key_unique: open b.sql: file does not exist"},
		"a wrong anchor":             {rulesPage, `"r2"`, `"r1"`, "R2 is at the heading of R2, with the anchor r1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := fstest.MapFS{}
			for file, text := range right {
				if file == test.file {
					require.Contains(t, text, test.old)
					text = strings.Replace(text, test.old, test.new, 1)
				}
				files[file] = &fstest.MapFile{Data: []byte(text)}
			}
			wrong, err := checkRules(files)
			require.NoError(t, err)
			require.Equal(t, test.wrong, strings.Join(wrong, "\n"))
		})
	}
}
