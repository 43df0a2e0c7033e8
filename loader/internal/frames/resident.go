package frames

import "github.com/goatnote-inc/robocache/cache"

// FrameID names a frame of a column.
type FrameID struct {
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

// AdmitFrames notes what an epoch's samples of a pool will want of a column, and how often: it is decoded from then on, and kept until it was.
// first: the epoch begins with it.
func (w *Worker) AdmitFrames(col *Stream, wanted map[FrameID]int32, epoch, seq int64, first bool) {
	s := w.s
	prefixes := map[string]cache.Key{}
	if s.disk != nil {
		for k := range wanted {
			if _, ok := prefixes[k.Path]; !ok {
				prefixes[k.Path] = w.diskPrefix(col, k.Path)
			}
		}
	}
	byPath := map[string][]*frame{}
	s.mu.Lock()
	for k, n := range wanted {
		if s.disk != nil && s.disk.hasFrame(prefixes[k.Path], int32(k.Ordinal), 1) {
			continue
		}
		key := frameKey{col.ID, s.fileNumber(col.ID, k.Path), int32(k.Ordinal)}
		if x := s.frames[key]; x != nil {
			x.uses[epoch&1] += n
			continue
		}
		x := &frame{key: key}
		x.uses[epoch&1] = n
		s.indexFrame(x)
		byPath[k.Path] = append(byPath[k.Path], x)
	}
	s.mu.Unlock()
	for path, list := range byPath {
		r := &request{stream: col, path: path, frames: sortByOrdinal(list), taskFrames: residentFrames, idlePriority: seq + background}
		if first && s.remote == nil { // the first batch waits for a few frames of each episode
			r.taskFrames = firstFrames
		}
		w.q.Push(Job{Prio: seq, Sub: int64(col.ID), Kind: Admit, Run: func(w *Worker) { w.planRequest(r) }})
	}
}

// ReleaseUses takes back uses that will not come.
func (s *Store) ReleaseUses(col *Stream, wanted map[FrameID]int32, epoch int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, n := range wanted {
		if x := s.frames[frameKey{col.ID, s.fileNumber(col.ID, k.Path), int32(k.Ordinal)}]; x != nil {
			x.uses.release(epoch, n)
			s.releaseIfUnused(x)
		}
	}
}

// ReleaseEpoch takes back all uses of an epoch whose batches were given: what drop_last leaves out never comes.
func (s *Store) ReleaseEpoch(epoch int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.frames {
		if x.uses[epoch&1] > 0 {
			x.uses[epoch&1] = 0
			s.releaseIfUnused(x)
		}
	}
}
