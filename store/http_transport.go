package store

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/goatnote-inc/robocache"
)

// currentProxy returns the proxy of the current environment. http.ProxyFromEnvironment caches its
// first result, but a Python program may set the variables later.
func currentProxy(req *http.Request) (*url.URL, error) {
	return httpproxy.FromEnvironment().ProxyFunc()(req.URL)
}

// newTransport returns a transport with a pool of HTTP/1.1 connections. Compared with HTTP/2, a
// reset then affects only one range, and several streams use several windows.
func newTransport(base *url.URL, opt HTTPOptions) *http.Transport {
	t := &http.Transport{
		Proxy:                  currentProxy,
		MaxConnsPerHost:        opt.Conns,
		MaxIdleConnsPerHost:    opt.Conns,
		MaxIdleConns:           2 * opt.Conns,
		IdleConnTimeout:        60 * time.Second,
		TLSHandshakeTimeout:    opt.Stall,
		MaxResponseHeaderBytes: 256 << 10,
		DisableCompression:     true,
		ReadBufferSize:         64 << 10,
		Protocols:              new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	// The user named the host and the proxy, so they may have private addresses. A redirect may lead
	// to a private address only if the user's own host is private, too.
	trusted := map[string]bool{hostPort(base): true}
	if proxy, err := currentProxy(&http.Request{URL: base}); err == nil && proxy != nil {
		trusted[hostPort(proxy)] = true
	}
	private := opt.AllowPrivate || isPrivateName(base.Hostname())
	open := &net.Dialer{Timeout: opt.Stall, KeepAlive: 15 * time.Second}
	guarded := *open
	guarded.Control = func(network, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil || !mayVisit(ap.Addr(), private) {
			return robocache.Misuse(
				"",
				nil,
				"a redirect leads to a private address, which could be made to read what only "+
					"this machine can reach",
			).
				WithHint("open the address itself if you trust it")
		}
		return nil
	}
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if trusted[strings.ToLower(addr)] {
			return open.DialContext(ctx, network, addr)
		}
		return guarded.DialContext(ctx, network, addr)
	}
	return t
}

// hostPort returns host and port of a URL, with the default port of the scheme.
func hostPort(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	case u.Scheme == "socks5":
		port = "1080"
	default:
		port = "80"
	}
	return strings.ToLower(net.JoinHostPort(u.Hostname(), port))
}

// isPrivateName reports whether host is localhost or a private address.
func isPrivateName(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && !mayVisit(a, false)
}

// mayVisit reports whether a redirect may lead to an address. Link-local addresses are never
// allowed, because clouds serve credentials there.
func mayVisit(a netip.Addr, private bool) bool {
	a = a.Unmap()
	if !a.IsValid() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() {
		return false
	}
	return private || !a.IsLoopback() && !a.IsPrivate()
}

// maxRedirects limits a chain of redirects.
const maxRedirects = 10

// checkRedirect accepts or rejects a redirect. It removes secrets from requests to other hosts.
func (h *HTTP) checkRedirect(req *http.Request, via []*http.Request) error {
	refuse := func(msg string) error {
		return robocache.Misuse("", nil, "%s", msg)
	}
	switch {
	case len(via) > maxRedirects:
		return refuse("too many redirects")
	case req.URL.Scheme != "http" && req.URL.Scheme != "https":
		return refuse("a redirect to something that is not http(s)")
	case h.base.Scheme == "https" && req.URL.Scheme == "http":
		return refuse("a redirect from https to http")
	}
	req.Header.Del("Referer") // it would contain the signature of the query
	if hostPort(req.URL) != hostPort(h.base) {
		req.Header.Del("Authorization")
		for k := range h.options.Header {
			req.Header.Del(k)
		}
		a, err := netip.ParseAddr(req.URL.Hostname())
		if err == nil && !mayVisit(a, h.options.AllowPrivate || isPrivateName(h.base.Hostname())) {
			return refuse("a redirect to a private address")
		}
	}
	return nil
}
