package frames

import "github.com/goatnote-inc/robocache/cache"

// ID names a frame of a column.
type ID struct {
	Path    string
	Ordinal int
}

const (
	// residentFrames is few enough that the first batch does not wait for whole episodes, and that all workers end about together where a pool is filled anew.
	residentFrames = 8
	// firstFrames is that of a pool's first residents, where files are at hand: each task of a remote file is a read of its own.
	firstFrames = 2
	// background is how many batches later than its admission an episode's frames come that no batch has asked for yet.
	background = 64
)

// Admit notes what samples of a pool will want of a column, and how often: it is decoded from then on, and kept until it was.
func (w *Worker) Admit(col Column, uses map[ID]int32, seq int64) {
	s := w.s
	prefixes := map[string]cache.Key{}
	if s.disk != nil {
		for k := range uses {
			if _, ok := prefixes[k.Path]; !ok {
				prefixes[k.Path] = w.prefix(col, k.Path)
			}
		}
	}
	byPath := map[string][]*frame{}
	s.mu.Lock()
	for k, n := range uses {
		if s.disk != nil && s.disk.has(prefixes[k.Path], int32(k.Ordinal), 1) {
			continue
		}
		key := frameKey{col.ID(), s.file(col.ID(), k.Path), int32(k.Ordinal)}
		if x := s.have[key]; x != nil {
			x.uses += n
			continue
		}
		x := &frame{key: key, uses: n}
		s.list(x)
		byPath[k.Path] = append(byPath[k.Path], x)
	}
	s.mu.Unlock()
	for path, list := range byPath {
		r := &request{col: col, path: path, frames: sorted(list), least: residentFrames, later: seq + background}
		if seq == 0 && s.remote == nil { // the first batch waits for a few frames of each episode
			r.least = firstFrames
		}
		w.q.Push(Job{Prio: seq, Sub: int64(col.ID()), Kind: Admit, Run: func(w *Worker) { w.plan(r) }})
	}
}

// Pass takes back uses that will not come.
func (s *Store) Pass(col Column, uses map[ID]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, n := range uses {
		if x := s.have[frameKey{col.ID(), s.file(col.ID(), k.Path), int32(k.Ordinal)}]; x != nil {
			x.uses = max(x.uses-n, 0)
			s.settle(x)
		}
	}
}
