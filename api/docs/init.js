// Renders the contract. The options keep Scalar from calling anybody: no fonts,
// no telemetry, no assistant, no hosted client, no request proxy.
Scalar.createApiReference('#docs', {
  url: '/openapi.yaml',
  servers: [{ url: window.location.origin, description: 'This server' }],
  withDefaultFonts: false,
  telemetry: false,
  agent: { disabled: true },
  hideClientButton: true,
  showDeveloperTools: 'never',
  persistAuth: false,
  orderSchemaPropertiesBy: 'preserve',
  orderRequiredPropertiesFirst: false,
});
