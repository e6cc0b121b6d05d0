# syntax=docker/dockerfile:1

# The program, and with --target stripetest the fake Stripe. Both are static, so
# the images contain no other executable.
#   docker build --build-arg VERSION=1.2.3 -t orders-api:1.2.3 .
#   docker buildx build --platform linux/amd64,linux/arm64 -t … --push .
# VERSION is what "orders --version" prints, and the label of the image.

ARG VERSION=devel

# Cross-compiles on the platform of the build machine.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG TARGETOS
ARG TARGETARCH
ARG VERSION
ENV CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH VERSION=$VERSION
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go build -trimpath -ldflags="-s -w -X main.buildVersion=$VERSION" -o /out/ ./cmd/orders ./cmd/stripetest

# CA certificates, /tmp and a user, but no shell.
FROM gcr.io/distroless/static-debian12:nonroot AS base
# Numeric, because Kubernetes' runAsNonRoot cannot check a name.
USER 65532:65532

FROM base AS stripetest
ARG VERSION
LABEL org.opencontainers.image.title="stripetest" org.opencontainers.image.version="$VERSION"
COPY --from=build /out/stripetest /stripetest
EXPOSE 12111
ENTRYPOINT ["/stripetest"]
CMD ["-addr", ":12111"]

# No HEALTHCHECK: the image runs every command, and only serve has /readyz, which what routes requests to it asks.
FROM base AS orders
ARG VERSION
LABEL org.opencontainers.image.title="orders-api" org.opencontainers.image.version="$VERSION"
COPY --from=build /out/orders /orders
EXPOSE 8080
ENTRYPOINT ["/orders"]
CMD ["serve"]
