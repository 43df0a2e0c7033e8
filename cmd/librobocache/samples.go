//go:build cgo

package main

import (
	"cmp"
	"errors"

	"github.com/goatnote-inc/robocache/loader"
)

// mapHandle is a loader.Map behind a handle. Calls share it, and the last user closes it.
type mapHandle struct {
	users
	m *loader.Map
}

type mapReply struct {
	Map    int64          `json:"map"`
	Len    int64          `json:"len"`
	Fields []loader.Field `json:"fields"`
	Notes  []string       `json:"notes,omitempty"`
	normalization
}

func newMap(dataset int64, in []byte) (work, error) {
	r, err := parseRequest(in)
	if err != nil {
		return nil, err
	}
	if r.sources != nil || r.pin {
		return nil, misuse("map", "a map is of one dataset, in ordinary memory")
	}
	return func(ctx context) (any, error) {
		s, err := acquireObject[*sharedDataset](dataset)
		if err != nil {
			return nil, err
		}
		r.cfg.DepthUnit = cmp.Or(r.cfg.DepthUnit, loader.DepthUnit(s.depth))
		r.cfg.Stats, r.cfg.Log = statsOf(r.stats), logOf(ctx)
		err = s.checkGrid(ctx, r.cfg.Hz, r.cfg.Align)
		var m *loader.Map
		if err == nil {
			m, err = loader.NewMap(ctx, s.Dataset, r.cfg)
		}
		if err != nil {
			_ = s.release()
			return nil, err
		}
		h := &mapHandle{m: m}
		h.end = func() error { return errors.Join(m.Close(), s.release()) }
		h.n.Store(1)
		return newHandle(h, func(h int64) any {
			return mapReply{
				h,
				m.Len(),
				m.Fields(),
				m.Notes(),
				normalization{m.Normalizers(), m.Settled()},
			}
		}), nil
	}, nil
}

func (m *mapHandle) readItems(ctx context, a *struct {
	Indices []int64 `json:"indices"`
},
) (any, error) {
	return buildAnswer(func(ans *answer) error {
		itemsValue, err := m.m.Items(ctx, a.Indices)
		if err != nil {
			return err
		}
		ans.addBatch(itemsValue)
		return nil
	})
}
