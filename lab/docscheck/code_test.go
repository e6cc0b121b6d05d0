package docscheck_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the code blocks of the guides")

// block matches a code block from a file. A marker names the file and the declarations to
// show, or only the file:
//
//	<!-- code:begin examples/labels/labels.go Service Service.Routes -->
//	<!-- code:end -->
var block = regexp.MustCompile(`(?s)<!-- code:begin (\S+)([^\n]*) -->\n(.*?)<!-- code:end -->\n`)

func TestGenerated(t *testing.T) {
	t.Parallel()
	blocks := 0
	for _, page := range allPages(t) {
		file := filepath.Join("../..", filepath.FromSlash(page.Path))
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, strings.Count(string(text), "<!-- code:"), 2*len(block.FindAll(text, -1)), "%s: a marker has no partner", page.Path)
		want := block.ReplaceAllStringFunc(withDefaults(t, string(text)), func(old string) string {
			blocks++
			parts := block.FindStringSubmatch(old)
			file, names := parts[1], strings.Fields(parts[2])
			code := excerpt(t, filepath.Join("../..", filepath.FromSlash(file)), names)
			return fmt.Sprintf("<!-- code:begin %s%s -->\n```%s\n%s```\n<!-- code:end -->\n",
				file, parts[2], strings.TrimPrefix(filepath.Ext(file), "."), code)
		})
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
			continue
		}
		require.True(t, want == string(text), "%s is out of date: run make generate", page.Path) // Equal would print both pages
	}
	require.NotZero(t, blocks)
}

// stated matches a default that a text states with its variable, such as "72 hours after
// the request finished (`KEY_RETENTION`".
var stated = regexp.MustCompile("\\d+( hours[^(|`.]*\\(`([A-Z_]+)`)")

// withDefaults replaces the stated defaults by those of .env.example, which is generated
// from the configuration.
func withDefaults(t *testing.T, text string) string {
	t.Helper()
	env, err := os.ReadFile("../../.env.example")
	require.NoError(t, err)
	return stated.ReplaceAllStringFunc(text, func(old string) string {
		parts := stated.FindStringSubmatch(old)
		value := regexp.MustCompile(`(?m)^` + parts[2] + `=(.+)$`).FindSubmatch(env)
		require.NotNil(t, value, "%s has no default", parts[2])
		duration, err := time.ParseDuration(string(value[1]))
		require.NoError(t, err)
		return fmt.Sprint(duration.Hours()) + parts[1]
	})
}

// openapi.yaml states the defaults of durations.
func TestGenerated_contract(t *testing.T) {
	t.Parallel()
	const file = "../../openapi.yaml"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Len(t, stated.FindAll(text, -1), 3)
	want := withDefaults(t, string(text))
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
		return
	}
	require.True(t, want == string(text), "the durations in %s are out of date: run make generate", file)
}

// excerpt returns the declarations with their comments, or the whole file.
func excerpt(t *testing.T, file string, names []string) string {
	t.Helper()
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	if len(names) == 0 {
		return string(source)
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, source, parser.ParseComments)
	require.NoError(t, err)
	declared := map[string]string{}
	for _, declaration := range parsed.Decls {
		name, comment := describe(declaration)
		begin := declaration.Pos()
		if comment != nil {
			begin = comment.Pos()
		}
		declared[name] = string(source[files.Position(begin).Offset:files.Position(declaration.End()).Offset]) + "\n"
	}
	var code []string
	for _, name := range names {
		require.Contains(t, declared, name, file)
		code = append(code, declared[name])
	}
	return strings.Join(code, "\n")
}

// describe returns the name of a declaration, with the type of a method, and its comment.
func describe(declaration ast.Decl) (name string, comment *ast.CommentGroup) {
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		name = d.Name.Name
		if d.Recv != nil {
			receiver := d.Recv.List[0].Type
			if pointer, ok := receiver.(*ast.StarExpr); ok {
				receiver = pointer.X
			}
			name = fmt.Sprint(receiver) + "." + name
		}
		return name, d.Doc
	case *ast.GenDecl:
		switch spec := d.Specs[0].(type) {
		case *ast.TypeSpec:
			return spec.Name.Name, d.Doc
		case *ast.ValueSpec:
			return spec.Names[0].Name, d.Doc
		}
		return "imports", d.Doc
	default:
		return "", nil
	}
}
