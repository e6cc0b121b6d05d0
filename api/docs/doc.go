// Package docs serves a page that renders the contract, and the two scripts the
// page needs, all of it embedded: it works offline, and a strict content
// security policy keeps it from calling anybody but its own server.
//
// The renderer is Scalar 1.46.4 (MIT, see scalar.LICENSE). To take another
// version, pack the file anew and look at the page with the browser's network
// log open:
//
//	npm pack @scalar/api-reference@<version>
//	tar xzf scalar-api-reference-*.tgz package/dist/browser/standalone.js
//	gzip -9nc package/dist/browser/standalone.js > scalar.js.gz
//
// The package does not know the contract: the page loads /openapi.yaml, which
// others serve.
package docs
