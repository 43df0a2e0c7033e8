package loader

// Normalizers describes the normalization of each source.
func (l *Loader) Normalizers() []Normalizer {
	l.assemblerLock.RLock()
	defer l.assemblerLock.RUnlock()
	return l.assembler.Normalizers()
}

// Settled returns the normalization of each source with the statistics that it uses.
func (l *Loader) Settled() []Normalize {
	l.assemblerLock.RLock()
	defer l.assemblerLock.RUnlock()
	return l.assembler.SettledNormalize()
}

// Normalizers describes the normalization.
func (m *Map) Normalizers() []Normalizer { return m.assembler.Normalizers() }

// Settled returns the normalization with the statistics that it uses.
func (m *Map) Settled() []Normalize { return m.assembler.SettledNormalize() }
