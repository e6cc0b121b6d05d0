package events

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// newTransport returns a transport that connects only to allowed addresses (R28, events to the shop). They are
// checked when they are dialled, because a name may resolve to another address each time. It uses no proxy,
// and follows no redirect, because it is no client.
func newTransport(allowed func(netip.Addr) bool) *http.Transport {
	dialer := &net.Dialer{
		Timeout: 5 * time.Second,
		Control: func(_, address string, _ syscall.RawConn) error {
			dialled, err := netip.ParseAddrPort(address)
			if err == nil && !allowed(dialled.Addr().Unmap()) {
				err = fmt.Errorf("events are not sent to the address %s", dialled.Addr())
			}
			return err
		},
	}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		MaxIdleConnsPerHost:    perEndpoint,
		MaxIdleConns:           concurrency,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: 16 << 10,
	}
}

// isPublic reports whether an address is on the internet, rather than of this host, of a private network
// or of a cloud's metadata.
func isPublic(ip netip.Addr) bool {
	return ip.IsGlobalUnicast() && !ip.IsPrivate() && (ip.Is4() || internet6.Contains(ip)) &&
		!slices.ContainsFunc(notPublic, func(network netip.Prefix) bool { return network.Contains(ip) })
}

// internet6 has all public addresses of IPv6, so NAT64 and addresses that embed others are not public.
var internet6 = netip.MustParsePrefix("2000::/3")

// notPublic are the networks of the registries of special-purpose addresses (RFC 6890) that no other
// condition of isPublic contains and that can lead to private hosts.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"), // carrier-grade NAT
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), // benchmarks
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("2001::/23"), // Teredo and others
	netip.MustParsePrefix("2002::/16"), // 6to4
}
