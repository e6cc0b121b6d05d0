# Each line of sources.lock is a repository, a commit and its version. The files of the commit
# are put into ./source/NAME.
set -e
grep -v '^#' sources.lock | while read -r url commit _; do
	folder=source/$(basename "$url")
	git init -q "$folder"
	git -C "$folder" fetch -q --depth 1 "$url" "$commit"
	git -C "$folder" checkout -q FETCH_HEAD
done
