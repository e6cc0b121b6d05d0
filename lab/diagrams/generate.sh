#!/usr/bin/env bash
# Draws docs/diagrams/*.mmd as SVG with Mermaid in Chromium (CHROMIUM or one on the PATH).
# Each picture contains the hash of its text, which a test of lab/docscheck compares.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
browser=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)} ||
	{ echo "$(basename "$0"): no Chromium found, set CHROMIUM" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund --silent --no-update-notifier \
	@mermaid-js/mermaid-cli@11.12.0
# The texts are our own, and Chromium's sandbox does not start as root or in containers.
printf '{"executablePath": "%s", "args": ["--no-sandbox"]}' "$browser" >"$folder/puppeteer.json"
cat >"$folder/mermaid.json" <<'EOF'
{
  "theme": "neutral",
  "htmlLabels": false,
  "deterministicIds": true,
  "fontFamily": "Helvetica, Arial, sans-serif",
  "themeVariables": { "noteBkgColor": "#fff8dc", "noteTextColor": "#222222", "noteBorderColor": "#b8a35a" },
  "flowchart": { "htmlLabels": false, "curve": "linear", "nodeSpacing": 28, "rankSpacing": 32, "wrappingWidth": 400 },
  "sequence": { "mirrorActors": false, "actorMargin": 40 }
}
EOF

cd "$here/../../docs/diagrams"
for text in *.mmd; do
	picture=${text%.mmd}.svg
	echo "$picture"
	"$folder/node_modules/.bin/mmdc" --quiet --puppeteerConfigFile "$folder/puppeteer.json" \
		--configFile "$folder/mermaid.json" --backgroundColor white --input "$text" --output "$picture"
	printf '\n<!-- sha256 of %s: %s -->\n' "$text" "$(sha256sum <"$text" | cut -d' ' -f1)" >>"$picture"
done
