// Renders the contract. The options keep Scalar from calling other servers: no fonts, no
// telemetry, no assistant, no hosted client, no request proxy. The token is not kept in
// the browser's storage (persistAuth). An API key in the page's head is filled in.
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
  authentication: token ? { preferredSecurityScheme: 'apiKey', securitySchemes: { apiKey: { token } } } : undefined,
  orderSchemaPropertiesBy: 'preserve',
  orderRequiredPropertiesFirst: false,
});
