package plan

import (
	"context"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
)

// maskedNaN wraps a dataset and masks its rows that contain NaN or infinity. A masked row reads as
// zeros and is not valid.
type maskedNaN struct {
	robocache.Dataset
	info    robocache.Info
	offered robocache.Capabilities
	rows    *column.FiniteRows
}

// maskNaN returns ds with masked rows. rows finds the rows that contain NaN or infinity.
func maskNaN(ds robocache.Dataset, rows *column.FiniteRows) *maskedNaN {
	m := &maskedNaN{Dataset: ds, info: *ds.Info(), rows: rows}
	m.info.Features = slices.Clone(m.info.Features)
	for i := range m.info.Features {
		if f := &m.info.Features[i]; rows.Streams[f.Key] != nil && !f.Default {
			f.Masked = true
		}
	}
	m.offered = *ds.Capabilities()
	c := &m.offered
	c.Valid, c.Recording = m.Valid, nil
	if own := c.Message; own != nil {
		c.Message = func(key string) *robocache.MessageSource {
			source := own(key)
			if f := m.info.Feature(key); source != nil && f != nil {
				source.FiniteOnly = rows.Streams[key] != nil && !f.Default
			}
			return source
		}
	}
	c.Origin = func(ctx context.Context, e int) (*robocache.Origin, error) {
		return robocache.OriginOf(ctx, ds, e)
	}
	return m
}

// Capabilities returns the capabilities of the wrapped dataset, with a Valid that includes the
// mask. Ragged rows are not masked.
func (m *maskedNaN) Capabilities() *robocache.Capabilities { return &m.offered }

// Unwrap returns the wrapped dataset (robocache.As).
func (m *maskedNaN) Unwrap() robocache.Dataset { return m.Dataset }

// Info returns the description of the wrapped dataset, with Masked set for float streams.
func (m *maskedNaN) Info() *robocache.Info { return &m.info }

// Gather reads rows, and writes zeros for rows that contain NaN or infinity.
func (m *maskedNaN) Gather(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	dst []byte,
) error {
	if err := m.Dataset.Gather(ctx, key, rows, dst); err != nil || len(rows) == 0 {
		return err
	}
	size := len(dst) / len(rows)
	return m.forEachBadRow(ctx, key, rows, func(i int) { clear(dst[i*size : (i+1)*size]) })
}

// Valid writes 1 for rows that are valid in the wrapped dataset and finite, else 0.
func (m *maskedNaN) Valid(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	valid []uint8,
) error {
	if f := m.Dataset.Info().Feature(key); f != nil && f.Masked {
		if err := robocache.Valid(ctx, m.Dataset, key, rows, valid); err != nil {
			return err
		}
	} else {
		for i := range valid {
			valid[i] = 1
		}
	}
	return m.forEachBadRow(ctx, key, rows, func(i int) { valid[i] = 0 })
}

// forEachBadRow calls fn with the position in rows of each row that contains NaN or infinity.
func (m *maskedNaN) forEachBadRow(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	fn func(i int),
) error {
	s := m.rows.Streams[key]
	if s == nil || !m.info.Feature(key).Masked {
		return nil
	}
	for i, r := range rows {
		if s.State[r.Episode].Load() == column.ScanFinite {
			continue
		}
		bad, err := m.rows.BadRows(ctx, key, r.Episode)
		if err != nil {
			return err
		}
		if _, isBad := slices.BinarySearch(bad, r.Index); isBad {
			fn(i)
		}
	}
	return nil
}
