#!/usr/bin/env bash
# Generates clients from openapi.yaml with openapi-typescript, @hey-api/openapi-ts, orval, oapi-codegen
# and ogen, by the commands of docs/guides/generated-clients.md. Each places an order, replays it, is
# declined, refunds, cancels and lists at "playground run", and reads the responses of a server that
# responds as a later version may. Another module also imports the Go client, as its doc.go describes.
# Everything happens in a folder that is deleted afterwards. SPEC is the absolute path of another
# contract to generate from.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../dev.sh
. "$here/../dev.sh" openapi-typescript@7.13.0 openapi-fetch@0.17.0 @hey-api/openapi-ts@0.94.0 orval@7.13.0 typescript@5.9.3 js-yaml@4.1.1 @types/node@20.19.25
spec=${SPEC:-$root/openapi.yaml}

# quietly shows what a command prints only if the command fails.
quietly() { "$@" >generated.log 2>&1 || { cat generated.log >&2; return 1; }; }

cp -R "$here/testdata/clients/." "$folder"
cd "$folder"
mv clients.mod go.mod # in the repository, a go.mod would make the folder a module
mv clients.sum go.sum
node later.mjs "$url" >later.log &
cp "$spec" openapi.yaml
# block prints the only code block of the guide in a language.
block() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$root/docs/guides/generated-clients.md" | sed '/^```/d'; }
block yaml >ogen.yml
block js >orval.config.cjs
block sh >generate.sh
for tool in ogen oapi-codegen openapi-typescript openapi-ts orval; do
	grep -Eq "^(go tool|npx) (@hey-api/)?$tool(@| )" generate.sh || { echo "The guide has no command for $tool." >&2; exit 1; }
done
quietly sh -eu generate.sh
npx tsc --strict --skipLibCheck --target es2022 --module nodenext --moduleResolution nodenext openapi-fetch.mts hey-api.mts orval.mts
go build -trimpath -o bin/ ./ogen ./oapicodegen # otherwise the temporary path would prevent use of the build cache

later=$(cat later.log)
# shellcheck disable=SC2086 # a program and its argument
for client in "node openapi-fetch.mjs" "node hey-api.mjs" "node orval.mjs" bin/oapicodegen bin/ogen; do
	$client "$url" "$key" "$later"
	echo "$client: the client runs"
done

# The module of the client has the path and the folder of this repository.
mkdir "$folder/import"
cd "$folder/import"
go mod init example.com/import 2>generated.log
cat >main.go <<'END'
package main

import "example.com/orders-api/client"

func main() { println(len(client.NewKey())) }
END
module=$(sed -n 's/^module //p' "$root/go.mod")
sed -n 's|^//\t\(go mod .*\)|\1|p' "$root/client/doc.go" | sed "s|github.com/you/shop|$module|g; s|\.\./shop|$root|" >import.sh
[ "$(wc -l <import.sh)" = 2 ]
quietly sh -eu import.sh
[ "$(go run . 2>&1)" = 36 ]
echo "another module imports the Go client"
