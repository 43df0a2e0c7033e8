package store

// Held reports whether a Retry-After holds back the requests of a store.
func Held(h *HTTP) bool { return h.gate.until.Load() != 0 }
