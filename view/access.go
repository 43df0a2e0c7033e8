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

// policy lets the page load what this server gives, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// NewToken makes a token of 128 random bits.
func NewToken() string { return strings.ToLower(rand.Text()) }

// cookieName is of one server: cookies are sent to every port of a host.
func cookieName(token string) string {
	h := sha256.Sum256([]byte("robocache view " + token))
	return "robocache-view-" + hex.EncodeToString(h[:4])
}

// guarded refuses what another site may have sent, ahead of everything else, and says what the page
// may do.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
			"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
		} {
			w.Header().Set(name, value)
		}
		site := r.Header.Get("Sec-Fetch-Site")
		switch {
		case !s.knownHost(r.Host):
			// A name that an attacker points here (DNS rebinding) would make his page one of this
			// origin.
			http.Error(
				w,
				"this server does not answer for the host "+hostName(
					r.Host,
				)+"; --allow-host names others",
				http.StatusMisdirectedRequest,
			)
		case site != "" && site != "same-origin" && site != "none", !sameOrigin(r):
			http.Error(w, "a request from another site", http.StatusForbidden)
		case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost:
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

// Loopback says whether a host name or address is this machine's own.
func Loopback(host string) bool {
	ip := net.ParseIP(hostName(host))
	return ip != nil && ip.IsLoopback() || hostName(host) == "localhost"
}

func (s *Server) knownHost(host string) bool {
	return Loopback(host) ||
		slices.ContainsFunc(
			s.opt.AllowHosts,
			func(h string) bool { return strings.EqualFold(h, hostName(host)) },
		)
}

func sameOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// allowed says whether a request brings the token.
func (s *Server) allowed(r *http.Request) bool {
	if s.opt.Token == "" {
		return true
	}
	same := func(text string) bool { return subtle.ConstantTimeCompare([]byte(text), []byte(s.opt.Token)) == 1 }
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return same(bearer)
	}
	c, err := r.Cookie(s.cookie)
	return err == nil && same(c.Value)
}

// login takes the token, which the page has from the part of its address that is not sent, and
// gives a cookie for it.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Token string `json:"token"`
	}
	if err := json.NewDecoder(r.Body).
		Decode(&in); err != nil ||
		s.opt.Token != "" &&
			subtle.ConstantTimeCompare([]byte(in.Token), []byte(s.opt.Token)) != 1 {
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
