#!/usr/bin/env bash
# Makes a clone a shop's own: renames the module, writes the shop's README, and removes what is about the
# template itself and, unless KEEP=demo, the demo and its console, with what leads to them: of a page, each
# line that begins with such a sentence, and otherwise the sentence alone.
# The branch "template" keeps the result, so that `make upgrade` can merge a newer version into the
# shop's changes.
set -euo pipefail

# Evidence, the reasons for the template instead of another one, and pages about what only a test of lab/ keeps true.
gone=(lab spec docs/proof.md docs/decisions.md docs/removed.md docs/libraries.md docs/cost.md
	docs/guides/engine-only.md docs/diagrams/{client,concurrent,crash,lost-response}.{mmd,svg} .github/ISSUE_TEMPLATE docs/guides/generated-clients.md .github/workflows/lab.yml)

own() {
	local old new=$1 line='(^|[^A-Za-z0-9_.-])(lab|spec)/|-C (lab|spec)|lab/own|(proof|decisions|removed|libraries|cost|engine-only|generated-clients)\.md'
	old=$(sed -n 's/^module //p' go.mod)
	# The first page of a shop, with what the template guarantees.
	{ cat lab/copies/testdata/README.md && echo && sed -n '/^## What is guaranteed/,/^## What it is not/p' README.md; } |
		sed '/^## What it is not/d' | cat -s >README.new
	mv README.new README.md
	git rm -rqf --ignore-unmatch "${gone[@]}"
	rm -rf lab spec
	# An upgrade keeps the demo if the shop has it.
	if [ "${KEEP-}" != demo ] && ! git cat-file -e template:cmd/playground/demo.go 2>/dev/null; then
		line+='|docs/console\.|\(console\.md|playground/earlierdesigns|`make demo`'
		git rm -rqf cmd/playground/{internal/demo,earlierdesigns} cmd/playground/{demo,console}{,_test}.go internal/subprocess docs/console.{md,png}
		sed -i.bak -E '/consoleExtension|cmd:"" hidden|  tour  |guided tour/d' cmd/playground/{main,run}.go
		sed -i.bak '/^\.PHONY: demo/,/^$/d' Makefile
		rm cmd/playground/{main,run}.go.bak Makefile.bak
		"$(go env GOROOT)/bin/gofmt" -w cmd/playground
	fi
	git grep -lIE "$line" -- ':!*.go' ':!*.sql' | while read -r file; do
		cp "$file" "$file.bak"
		case $file in
		*.md) pattern=$line perl -lne '
			my ($first, @more) = /$ENV{pattern}/ ? split /(?<=[^0-9][.?!)]) (?=[\[(*`"A-Z])/ : $_;
			print join " ", $first, grep { !/$ENV{pattern}/ } @more unless $first =~ /$ENV{pattern}/
			' "$file.bak" | cat -s >"$file" ;;
		Makefile) sed -E "\#$line#d" "$file.bak" | cat -s >"$file" ;;
		*) sed -E "\#$line#d" "$file.bak" >"$file" ;;
		esac
		rm "$file.bak"
	done
	git grep -lIF "$old" | while read -r file; do
		sed -i.bak "s|$old|$new|g" "$file" && rm "$file.bak"
	done
	git add --all
}

commit() {
	local who=(-c user.name=own -c user.email=own@localhost)
	git config user.email >/dev/null && who=()
	git ${who[@]+"${who[@]}"} commit -qm "$1"
}

main() {
	[[ ${1-} =~ ^[a-z0-9.-]+\.[a-z]+(/[A-Za-z0-9._~-]+)*$ ]] || { echo "usage: make own MODULE=github.com/you/shop" >&2; exit 2; }
	[ -z "$(git status --porcelain)" ] || { echo "own: commit or discard your changes first, so that git can undo this" >&2; exit 1; }
	echo "Renaming the module to $1, and removing what a shop does not need …"
	own "$1"
	commit "Own the template"
	git branch -f template
	echo "The repository is yours, in a commit. docs/own.md names what keeps its old name, and how to upgrade."
	echo "Building and testing (some minutes with empty caches) …"
	if ! { go vet ./... && make test; }; then
		echo "own: the repository is yours, but the tests above failed. make test runs them again." >&2
		exit 1
	fi
}

# The script deletes itself, so bash must have read all of it before.
[ "${BASH_SOURCE[0]}" != "$0" ] || { cd "$(dirname "$0")/.." && main "$@"; exit; }
