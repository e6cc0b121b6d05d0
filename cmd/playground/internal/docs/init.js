// Renders the contract. The options keep Scalar from calling other servers: no fonts, no
// telemetry, no assistant, no hosted client, no request proxy. The token is not kept in
// the browser's storage (persistAuth). An API key in the page's head is filled in.
// The document to download is the contract without this visit's values (documentDownloadType).
// Without generated clients (hiddenClients), each operation shows the contract's own sample.
// A table has no break inside a name: on a narrow screen its cells stand below each other.
// Below 1280 pixels Scalar puts the response under the request. So it is scrolled into view,
// with its body first, and is high enough to reach the top.
const token = document.querySelector('meta[name="api-key"]')?.content;

// The last 12 digits of the example keys and references, so that no visit repeats those of another.
const visit = crypto.getRandomValues(new BigUint64Array(1))[0].toString(16).padStart(16, '0').slice(4);

// ofThisVisit returns the contract with this visit's keys and references. The samples have this
// server's address, the keys that the page sends, and the API key if it is filled in.
function ofThisVisit(contract) {
  const parameters = contract.matchAll(/^    (\w+)Key:\n      name: Idempotency-Key\n(?: {6}.*\n)+/gm);
  for (const [parameter, name] of parameters) {
    const keys = parameter.match(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g);
    contract = contract.replaceAll(`$${name.toUpperCase()}_KEY`, keys[0]);
    for (const key of keys) contract = contract.replaceAll(key, key.slice(0, -12) + visit);
  }
  return contract
    .replaceAll('basket-17', `basket-${visit}`)
    .replaceAll('localhost:8080', location.host)
    .replaceAll('$API_KEY', token ?? '$API_KEY');
}

Scalar.createApiReference('#docs', {
  url: '/openapi.yaml',
  fetch: async (...request) => new Response(ofThisVisit(await (await fetch(...request)).text())),
  onRequestSent: () => { document.querySelector('section[aria-label="Response"]').scrollIntoView(); },
  servers: [{ url: location.origin, description: 'This server' }],
  withDefaultFonts: false,
  telemetry: false,
  agent: { disabled: true },
  hideClientButton: true,
  showDeveloperTools: 'never',
  documentDownloadType: 'direct',
  persistAuth: false,
  hiddenClients: true,
  defaultOpenAllTags: true,
  customCss: `
    .scalar-app .markdown table { display: block; table-layout: auto; overflow-x: auto; }
    .scalar-app .markdown :is(td, th) { word-break: normal; overflow-wrap: normal; }
    .scalar-app .markdown td code { white-space: nowrap; }
    @media (max-width: 1279px) {
      section[aria-label="Response"] { flex-shrink: 0; min-height: 100%; }
      .response-section-content-body { order: -1; }
      .scalar-app-layout main > * { min-width: 0; }
    }
    @media (max-width: 600px) {
      .scalar-app .markdown thead { display: none; }
      .scalar-app .markdown :is(tbody, tr, td) { display: block; border-right: 0; }
      .scalar-app .markdown td:not(:last-child) { border-bottom: 0; padding-bottom: 0; }
      .scalar-app .markdown td { padding: 8px; }
    }`,
  authentication: token ? { preferredSecurityScheme: 'apiKey', securitySchemes: { apiKey: { token } } } : undefined,
  orderSchemaPropertiesBy: 'preserve',
  orderRequiredPropertiesFirst: false,
});
