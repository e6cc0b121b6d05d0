package app

import (
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	proxyURL = regexp.MustCompile(`^$|^((https?|socks5h?)://)?(([\w.~!$&'()*+,;=:-]|%[[:xdigit:]]{2})*@)?([\w.-]+|\[[\w.:%-]+\])(:\d*)?/*$`)
	noProxy  = regexp.MustCompile(`^[\w.*:\[\]-]*$`)
)

// validateNetwork rejects variables of Go's libraries that these would ignore without an error: calls
// would go past the proxy, or each certificate would be unknown.
func validateNetwork(p *problems) {
	proxied := false
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
		value := os.Getenv(name)
		proxied = proxied || value != ""
		p.check(proxyURL.MatchString(value), name, "is not the URL of a proxy such as http://proxy:3128 (its value is not shown)")
	}
	for _, name := range []string{"ALL_PROXY", "all_proxy"} {
		p.check(proxied || os.Getenv(name) == "", name, "has no effect here; set HTTPS_PROXY, or unset it")
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		for entry := range strings.SplitSeq(os.Getenv(name), ",") {
			entry = strings.TrimSpace(entry)
			_, _, err := net.ParseCIDR(entry)
			p.check(err == nil || noProxy.MatchString(entry), name, "%q is not a host, a domain, an address or a range such as 10.0.0.0/8", entry)
		}
	}
	if file := os.Getenv("SSL_CERT_FILE"); file != "" {
		certificates, err := os.ReadFile(file) //nolint:gosec // the operator names it
		p.check(err == nil, "SSL_CERT_FILE", "%v", err)
		p.check(x509.NewCertPool().AppendCertsFromPEM(certificates), "SSL_CERT_FILE", "%s has no certificate in PEM format", file)
	}
	readable := func(folder string) bool {
		_, err := os.ReadDir(folder)
		return err == nil
	}
	folders := filepath.SplitList(os.Getenv("SSL_CERT_DIR"))
	p.check(len(folders) == 0 || slices.ContainsFunc(folders, readable), "SSL_CERT_DIR", "has no folder that can be read: %q", folders)
}
