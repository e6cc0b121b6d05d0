#!/usr/bin/env bash
# Generates clients from openapi.yaml with ogen, oapi-codegen and openapi-typescript, and
# compiles and runs each against "playground run" and against a server that responds as a later
# version may. Everything happens in a folder that is deleted afterwards. SPEC is the
# absolute path of another contract to generate from.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../dev.sh
. "$here/../dev.sh" openapi-typescript@7.13.0 openapi-fetch@0.17.0 typescript@5.9.3 @types/node@20.19.25
spec=${SPEC:-$root/openapi.yaml}

# quietly shows what a command prints only if the command fails.
quietly() { "$@" >generated.log 2>&1 || { cat generated.log >&2; return 1; }; }

cp -R "$here/testdata/clients/." "$folder"
cd "$folder"
mv clients.mod go.mod # in the repository, a go.mod would make the folder a module
mv clients.sum go.sum
node later.mjs "$url" >later.log &
quietly npx openapi-typescript "$spec" --output contract.ts
npx tsc --strict --skipLibCheck --target es2022 --module nodenext --moduleResolution nodenext client.mts
# Only the client: a server is not needed.
echo '{"generator": {"features": {"disable_all": true, "enable": ["paths/client"]}}}' >ogen.yml
quietly go tool ogen -config ogen.yml -target ogen/client -package client "$spec"
mkdir oapicodegen/client
# Without skip-prune, oapi-codegen removes the parameters that only the webhooks use, and then needs them.
quietly go tool oapi-codegen -generate types,client,skip-prune -package client -o oapicodegen/client/client.go "$spec"
go build -trimpath -o bin/ ./ogen ./oapicodegen # otherwise the temporary path would prevent use of the build cache

later=$(cat later.log)
node client.mjs "$url" "$key" "$later"
echo "openapi-typescript: the client runs"
bin/oapicodegen "$url" "$key" "$later"
echo "oapi-codegen: the client runs"
bin/ogen "$url" "$key" "$later"
echo "ogen: the client runs"
