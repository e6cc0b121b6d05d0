// Package docs serves the contract and a page that renders it. All files are embedded, so
// the page works offline, and its content security policy allows its own server only.
//
// The renderer is Scalar 1.46.4 (MIT, see scalar.LICENSE). To update it, replace the
// file and check the page with the browser's network log:
//
//	npm pack @scalar/api-reference@<version>
//	tar xzf scalar-api-reference-*.tgz package/dist/browser/standalone.js
//	gzip -9nc package/dist/browser/standalone.js > scalar.js.gz
package docs
