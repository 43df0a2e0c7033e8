package store

// Held says whether an answer's Retry-After holds back all requests of a store.
func Held(h *HTTP) bool { return h.gate.until.Load() != 0 }
