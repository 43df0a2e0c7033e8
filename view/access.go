package view

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// policy allows the page to load only files and data of this server.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; " +
	"media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors " +
	"'none'"

// NewToken returns a token of 128 random bits.
func NewToken() string { return strings.ToLower(rand.Text()) }

// cookieName returns a name that depends on the token: browsers send cookies to every port of a
// host, so two servers need different names.
func cookieName(token string) string {
	h := sha256.Sum256([]byte("robocache view " + token))
	return "robocache-view-" + hex.EncodeToString(h[:4])
}

// guarded sets the security headers and rejects requests that another site may have sent. Only then
// it calls next.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy":      policy,
			"X-Content-Type-Options":       "nosniff",
			"Referrer-Policy":              "no-referrer",
			"X-Frame-Options":              "DENY",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Cross-Origin-Opener-Policy":   "same-origin",
		} {
			w.Header().Set(name, value)
		}
		site := r.Header.Get("Sec-Fetch-Site")
		switch {
		case !s.knownHost(r.Host):
			// If an attacker's host name resolves to this server (DNS rebinding), the attacker's
			// page would count as same-origin.
			http.Error(w, "this server does not answer for the host "+hostName(r.Host)+
				"; --allow-host names others", http.StatusMisdirectedRequest)
		case site != "" && site != "same-origin" && site != "none", !sameOrigin(r):
			http.Error(w, "a request from another site", http.StatusForbidden)
		case !slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPost}, r.Method):
			http.Error(w, "the data is read only", http.StatusMethodNotAllowed)
		default:
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			next.ServeHTTP(w, r)
		}
	})
}

func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// Loopback reports whether a host name or address is a loopback address.
func Loopback(host string) bool {
	ip := net.ParseIP(hostName(host))
	return ip != nil && ip.IsLoopback() || hostName(host) == "localhost"
}

func (s *Server) knownHost(host string) bool {
	isHost := func(allowed string) bool { return strings.EqualFold(allowed, hostName(host)) }
	return Loopback(host) || slices.ContainsFunc(s.opt.AllowHosts, isHost)
}

func sameOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// isAuthorized reports whether a request has the token.
func (s *Server) isAuthorized(r *http.Request) bool {
	if s.opt.Token == "" {
		return true
	}
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return s.isToken(bearer)
	}
	c, err := r.Cookie(s.cookie)
	return err == nil && s.isToken(c.Value)
}

// isToken reports whether a text is the token, in a time that does not depend on the text.
func (s *Server) isToken(text string) bool {
	return subtle.ConstantTimeCompare([]byte(text), []byte(s.opt.Token)) == 1
}

// login checks the token and sets a cookie for it. The page reads the token from the fragment of
// its URL, which browsers do not send.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Token string `json:"token"`
	}
	err := json.NewDecoder(r.Body).Decode(&in)
	isWrong := s.opt.Token != "" && !s.isToken(in.Token)
	if err != nil || isWrong {
		http.Error(w, "not the token of this server", http.StatusUnauthorized)
		return
	}
	http.SetCookie(
		w,
		&http.Cookie{
			Name:     s.cookie,
			Value:    in.Token,
			Path:     "/",
			HttpOnly: true,
			SameSite: http.SameSiteStrictMode,
		},
	)
	w.WriteHeader(http.StatusNoContent)
}
