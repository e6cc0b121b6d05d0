#!/usr/bin/env bash
# Generates clients from openapi.yaml with openapi-typescript, @hey-api/openapi-ts, orval, oapi-codegen
# and ogen. Each places an order, replays it, is declined, refunds, cancels and lists at
# "playground run", and reads the responses of a server that responds as a later version may. Everything happens in a folder that is deleted afterwards. SPEC is the
# absolute path of another contract to generate from.
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
quietly npx openapi-typescript "$spec" --output contract.ts
quietly npx openapi-ts --input "$spec" --output hey --client @hey-api/client-fetch
# Without headers, orval's functions have no parameter for the key.
echo "module.exports = { api: { input: '$spec', output: { target: 'orval/api.ts', client: 'fetch', headers: true,
  override: { mutator: { path: 'fetcher.ts', name: 'fetcher' } } } } };" >orval.config.cjs
quietly npx orval --config orval.config.cjs
npx tsc --strict --skipLibCheck --target es2022 --module nodenext --moduleResolution nodenext openapi-fetch.mts hey-api.mts orval.mts
# Only the client: a server is not needed.
echo '{"generator": {"features": {"disable_all": true, "enable": ["paths/client"]}}}' >ogen.yml
quietly go tool ogen -config ogen.yml -target ogen/client -package client "$spec"
mkdir oapicodegen/client
# Without skip-prune, oapi-codegen removes the parameters that only the webhooks use, and then needs them.
quietly go tool oapi-codegen -generate types,client,skip-prune -package client -o oapicodegen/client/client.go "$spec"
go build -trimpath -o bin/ ./ogen ./oapicodegen # otherwise the temporary path would prevent use of the build cache

later=$(cat later.log)
# shellcheck disable=SC2086 # a program and its argument
for client in "node openapi-fetch.mjs" "node hey-api.mjs" "node orval.mjs" bin/oapicodegen bin/ogen; do
	$client "$url" "$key" "$later"
	echo "$client: the client runs"
done
