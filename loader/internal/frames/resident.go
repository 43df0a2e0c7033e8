package frames

import "github.com/goatnote-inc/robocache/cache"

// FrameID identifies a frame of a column.
type FrameID struct {
	Path    string
	Ordinal int
}

const (
	// residentTaskFrames is small enough that the first batch does not wait for whole episodes, and
	// that all workers finish filling a pool at about the same time.
	residentTaskFrames = 8
	// firstTaskFrames applies to the first episodes of a pool if files are local. Each task of a
	// remote file is a separate read, so there the larger size applies.
	firstTaskFrames = 2
	// backgroundDelay is added to the number of the batch that admits an episode. The sum is the
	// priority of frames that no batch has requested yet.
	backgroundDelay = 64
)

// AdmitFrames queues the decoding of frames that an epoch's pool samples need. wanted holds the
// number of uses of each frame, and a frame stays until its last use. seq is the batch that admits
// the episode. first reports whether the epoch begins with that batch.
func (w *Worker) AdmitFrames(col *Stream, wanted map[FrameID]int32, epoch, seq int64, first bool) {
	s := w.store
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
		r := &request{
			stream:       col,
			path:         path,
			frames:       sortByOrdinal(list),
			taskFrames:   residentTaskFrames,
			idlePriority: seq + backgroundDelay,
		}
		if first && s.remote == nil { // the first batch waits for a few frames of each episode
			r.taskFrames = firstTaskFrames
		}
		w.queue.Push(Job{
			Priority: seq,
			Order:    int64(col.ID),
			Kind:     AdmitKind,
			Run:      func(w *Worker) { w.planRequest(r) },
		})
	}
}

// ReleaseUses subtracts uses that will not happen.
func (s *Store) ReleaseUses(col *Stream, wanted map[FrameID]int32, epoch int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, n := range wanted {
		key := frameKey{col.ID, s.fileNumber(col.ID, k.Path), int32(k.Ordinal)}
		if x := s.frames[key]; x != nil {
			x.uses.subtractUses(epoch, n)
			s.releaseIfUnused(x)
		}
	}
}

// ReleaseEpoch subtracts all remaining uses of an epoch whose batches were delivered. Samples that
// drop_last omits leave such uses behind.
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
