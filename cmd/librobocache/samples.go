//go:build cgo

package main

import (
	"cmp"
	"errors"

	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/loader"
)

// mapHandle is a loader.Map behind a handle. Calls share it; the last one closes it.
type mapHandle struct {
	users
	m *loader.Map
}

type mapReply struct {
	Map    int64          `json:"map"`
	Len    int64          `json:"len"`
	Fields []loader.Field `json:"fields"`
	Notes  []string       `json:"notes,omitempty"`
	norms
}

func newMap(dataset int64, in []byte) work {
	r := guard.Must(parseRequest(in))
	if r.sources != nil || r.pin {
		guard.Fail(misuse("map", "a map is of one dataset, in ordinary memory"))
	}
	return func(ctx context) any {
		s := guard.Must(held[*shared](dataset))
		r.cfg.DepthUnit = cmp.Or(r.cfg.DepthUnit, loader.DepthUnit(s.depth))
		r.cfg.Stats, r.cfg.Log = statsOf(r.stats), logOf(ctx)
		err := s.checkGrid(ctx, r.cfg.Hz, r.cfg.Align)
		var m *loader.Map
		if err == nil {
			m, err = loader.NewMap(ctx, s.Dataset, r.cfg)
		}
		if err != nil {
			_ = s.release()
			guard.Fail(err)
		}
		h := &mapHandle{m: m}
		h.end = func() error { return errors.Join(m.Close(), s.release()) }
		h.n.Store(1)
		return keep(h, func(h int64) any {
			return mapReply{h, m.Len(), m.Fields(), m.Notes(), norms{m.Normalizers(), m.Settled()}}
		})
	}
}

func (m *mapHandle) items(ctx context, a *struct {
	Indices []int64 `json:"indices"`
}) any {
	return answers(func(ans *answer) { ans.batch(guard.Must(m.m.Items(ctx, a.Indices))) })
}
