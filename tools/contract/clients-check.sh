#!/usr/bin/env bash
# Generates a client in TypeScript and one in Go from openapi.yaml and compiles
# them beside a few lines that use them. Everything happens in a folder that is
# gone afterwards; packages come from npm and the Go module proxy.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
spec=$here/../../openapi.yaml

# quietly shows what a command prints only when it fails.
quietly() { "$@" >"$folder/log" 2>&1 || { cat "$folder/log" >&2; return 1; }; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/typescript" "$folder/go"

cd "$folder/typescript"
cp "$here/client.ts" .
npm install --ignore-scripts --no-audit --no-fund --silent --no-update-notifier \
	openapi-typescript@7.13.0 openapi-fetch@0.17.0 typescript@5.9.3
quietly npx openapi-typescript "$spec" --output contract.ts
npx tsc --noEmit --strict --target es2022 --module nodenext --moduleResolution nodenext client.ts contract.ts
echo "TypeScript: openapi-typescript's client compiles ($(wc -l <contract.ts) lines)"

cd "$folder/go"
mkdir client
cp "$here/client.go.txt" main.go
quietly go mod init example.com/generated
quietly go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 \
	-generate types,client -package client -o client/client.go "$spec"
quietly go mod tidy
go build -o /dev/null ./...
go vet ./...
echo "Go: oapi-codegen's client compiles ($(wc -l <client/client.go) lines)"
