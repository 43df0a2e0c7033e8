package frames

import (
	"context"
	"sync"
	"testing"

	"github.com/goatnote-inc/robocache/video"
)

// farFile counts how often it is open.
type farFile struct{ open *int }

type farFiles struct {
	Files
	f farFile
}

func (s farFiles) Open(context.Context, string) (File, error) {
	*s.f.open++
	return farOpen{s.f}, nil
}

type farOpen struct{ f farFile }

func (farOpen) Plan(_ *video.Planner, numbers []int) (out []video.Group) {
	for _, o := range numbers {
		out = append(out, video.Group{Start: o, End: o, Ordinals: []int{o}})
	}
	return out
}
func (farOpen) Remote() bool                                                 { return true }
func (farOpen) FetchBytes(video.Group) int64                                 { return 1 }
func (farOpen) Fetch(context.Context, []video.Group) (*video.Fetched, error) { return nil, nil }

func (farOpen) Decode(
	context.Context,
	*video.Fetched,
	[]video.Group,
	func(int, video.Frame) error,
) error {
	return context.Canceled
}
func (farOpen) Identity() [32]byte { return [32]byte{} }
func (farOpen) Size() (int, int)   { return 1, 1 }
func (farOpen) TimeNS(int) int64   { return 0 }
func (o farOpen) Release()         { *o.f.open-- }

// The packets of a run are released once. This holds whichever of its tasks is made more urgent
// (and so has two jobs), before or after the packets are read, and whether its jobs run or are
// dropped.
func TestFetchedIsReleasedOnce(t *testing.T) {
	for mask := range 64 {
		bit := func(k int) bool { return mask>>k&1 == 1 }
		open := 0
		s := New(Config{KeptBytes: 1 << 20, Cores: 2, ReadAheadBytes: 100})
		ctx, cancel := context.WithCancel(t.Context())
		q := NewQueue(ctx, &sync.Pool{New: func() any { return NewWorker(s, nil) }})
		w := q.Borrow()
		col := &Stream{Files: farFiles{f: farFile{open: &open}}}
		r := &readRun{}
		for o := range 3 {
			x := &frame{key: frameKey{0, 0, int32(o)}, uses: uses{1}}
			r.tasks = append(r.tasks, &task{
				request: &request{stream: col, frames: []*frame{x}, taskFrames: 1},
				frames:  []*frame{x},
				readRun: r,
			})
		}
		tasks := r.tasks
		cancel() // nothing is decoded, and no place is lost
		raised := func(k int) {
			s.mu.Lock()
			j := s.taskJob(tasks[k])
			s.mu.Unlock()
			if bit(3) {
				j.dropJob()
			} else {
				j.Run(w)
			}
		}
		if bit(0) {
			raised(0)
		}
		w.readRunPackets(r)
		if bit(1) {
			raised(1)
			raised(1)
		}
		for k := range tasks {
			if tasks[k].fetched != nil && (tasks[k].fetched.refs.Load() <= 0 || open != 1) {
				t.Fatalf("%06b: task %d waits for packets that were released", mask, k)
			}
		}
		for j, ok := q.popJob(); ok; j, ok = q.popJob() {
			if bit(4) {
				j.dropJob()
			} else {
				j.Run(w)
			}
			if len(q.jobs) == 0 {
				break
			}
		}
		if open != 0 || !s.remote.readAheadBytes.TryAcquire(100) {
			t.Fatalf("%06b: %d files stay open, or bytes are not released", mask, open)
		}
	}
}
