// Renders the contract. The options keep Scalar from calling other servers: no fonts, no
// telemetry, no assistant, no hosted client, no request proxy. The token is not kept in
// the browser's storage (persistAuth). An API key in the page's head is filled in.
// Without generated clients (hiddenClients), each operation shows the contract's own sample.
// A table has no break inside a name: on a narrow screen its cells stand below each other.
const token = document.querySelector('meta[name="api-key"]')?.content;
Scalar.createApiReference('#docs', {
  url: '/openapi.yaml',
  servers: [{ url: window.location.origin, description: 'This server' }],
  withDefaultFonts: false,
  telemetry: false,
  agent: { disabled: true },
  hideClientButton: true,
  showDeveloperTools: 'never',
  persistAuth: false,
  hiddenClients: true,
  defaultOpenAllTags: true,
  customCss: `
    .scalar-app .markdown table { display: block; table-layout: auto; overflow-x: auto; }
    .scalar-app .markdown :is(td, th) { word-break: normal; overflow-wrap: normal; }
    .scalar-app .markdown td code { white-space: nowrap; }
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
