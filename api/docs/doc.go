// Package docs serves the contract, a page that renders it, and its two scripts. All files
// are embedded, so the page works offline, and a strict content security policy lets it
// call its own server only.
//
// The renderer is Scalar 1.46.4 (MIT, see scalar.LICENSE). To update it, replace the
// file and check the page with the browser's network log:
//
//	npm pack @scalar/api-reference@<version>
//	tar xzf scalar-api-reference-*.tgz package/dist/browser/standalone.js
//	gzip -9nc package/dist/browser/standalone.js > scalar.js.gz
//
// The page loads the contract from /openapi.yaml.
package docs
