package main

/*
#include <stdint.h>
*/
import "C"

import (
	"cmp"
	"sync"

	"github.com/goatnote-inc/robocache/loader"
)

// mapped is a loader.Map behind a handle. Calls share it; closing waits for them.
type mapped struct {
	mu   sync.RWMutex
	m    *loader.Map // nil once closed
	data *shared
}

func (m *mapped) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.m == nil {
		return nil
	}
	err := m.m.Close()
	m.m = nil
	if rerr := m.data.release(); err == nil {
		err = rerr
	}
	return err
}

type mapReply struct {
	Map    int64          `json:"map"`
	Len    int64          `json:"len"`
	Fields []loader.Field `json:"fields"`
	Notes  []string       `json:"notes,omitempty"`
	norms
}

//export robocache_map_new
func robocache_map_new(dataset C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	w, err := parseWish(in)
	if err == nil && (w.sources != nil || w.pin) {
		err = misuse("map", "a map is of one dataset, in ordinary memory")
	}
	if err != nil {
		return fail(out, err)
	}
	return invoke(timeoutMS, ticket, out, func(ctx context) (result, error) {
		return holding(dataset, "map", func(s *shared) (result, error) {
			w.cfg.DepthUnit = cmp.Or(w.cfg.DepthUnit, s.depth)
			w.cfg.Stats, w.cfg.Log = statsOf(w.stats), logOf(ctx)
			m, err := loader.NewMap(ctx, s.Dataset, w.cfg)
			if err != nil {
				return result{}, err
			}
			return made(&mapped{m: m, data: s.retain()}, func(h int64) any {
				return mapReply{h, m.Len(), m.Fields(), m.Notes(), norms{m.Normalizers(), m.Settled()}}
			}), nil
		})
	})
}

//export robocache_map_items
func robocache_map_items(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	var a struct {
		Indices []int64 `json:"indices"`
	}
	if err := arguments(in, &a); err != nil {
		return fail(out, err)
	}
	return invoke(timeoutMS, ticket, out, func(ctx context) (result, error) {
		return reading(handle, func(m *loader.Map) (result, error) {
			b, err := m.Items(ctx, a.Indices)
			if err != nil {
				return result{}, err
			}
			var ans answer
			ans.batch(b)
			return ans.result(), nil
		})
	})
}

//export robocache_map_stats
func robocache_map_stats(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	return invoke(timeoutMS, ticket, out, func(context) (result, error) {
		return reading(handle, func(m *loader.Map) (result, error) { return result{value: m.Stats()}, nil })
	})
}

func reading(handle C.int64_t, f func(*loader.Map) (result, error)) (result, error) {
	m, err := lookup[*mapped](int64(handle), "map")
	if err != nil {
		return result{}, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.m == nil {
		return result{}, misuse("map", "the map is closed")
	}
	return f(m.m)
}
