package loader

import (
	"github.com/goatnote-inc/robocache/loader/internal/plan"
)

// Normalizers says how the keys of each source are normalised.
func (l *Loader) Normalizers() []plan.Normalizer { return l.a.Normalizers() }

// Settled is the normalisation of each source with its vectors.
func (l *Loader) Settled() []Normalize { return l.a.SettledNormalize() }

// Normalizers says how keys are normalised.
func (m *Map) Normalizers() []plan.Normalizer { return m.a.Normalizers() }

// Settled is the normalisation with its vectors.
func (m *Map) Settled() []Normalize { return m.a.SettledNormalize() }
