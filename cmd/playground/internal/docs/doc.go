// Package docs serves a page that renders the contract, offline too.
//
// The renderer is Scalar 1.46.4 (MIT, see scalar.LICENSE). To update it, replace the file and
// check the page with the browser's network log:
//
//	npm pack @scalar/api-reference@<version>
//	tar xzf scalar-api-reference-*.tgz package/dist/browser/standalone.js
//	gzip -9nc package/dist/browser/standalone.js > scalar.js.gz
package docs
