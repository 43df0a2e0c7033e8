package store

// HTTPOptions are the choices of a store behind http(s).
type HTTPOptions struct{}

// NewHTTP opens the store at an http(s) URL.
func NewHTTP(uri string, opt HTTPOptions) (Store, error) {
	return nil, unsupported("open", Redact(uri), "http", "")
}
