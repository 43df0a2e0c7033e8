package diff

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// digest is the first half of a SHA-256.
type digest [16]byte

// digestOf returns the digest of what write passes to its argument.
func digestOf(write func(add func(b []byte)) error) (d digest, err error) {
	h := sha256.New()
	err = write(func(b []byte) { h.Write(b) })
	copy(d[:], h.Sum(nil))
	return d, err
}

// signature holds the hashes of an episode.
type signature struct {
	content digest   // of the shared streams
	streams []digest // by number of side.streams; zero if the episode lacks the stream
	times   digest   // zero if the dataset keeps no time
	tasks   digest
}

// sign reads an episode and returns its hashes.
func (s *side) sign(ctx context.Context, episode int) (sig signature, err error) {
	sig.streams = make([]digest, len(s.streams))
	for i, x := range s.streams {
		n, ok, err := s.rowCount(ctx, episode, x.Feature)
		if err != nil {
			return sig, s.located(err, episode, x.Key)
		}
		if !ok {
			continue
		}
		sig.streams[i], err = digestOf(func(add func([]byte)) error {
			return s.eachBlock(ctx, x, episode, n, false, func(b *rowBlock) error {
				add(b.data)
				return nil
			})
		})
		if err != nil {
			return sig, err
		}
	}
	if sig.times, err = s.signTimes(ctx, episode); err != nil {
		return sig, err
	}
	tasks, err := s.rowTasks(ctx, episode)
	if err != nil {
		return sig, s.located(err, episode, "task")
	}
	sig.tasks, err = digestOf(func(add func([]byte)) error {
		for _, text := range tasks {
			add([]byte(text + "\x00"))
		}
		return nil
	})
	return sig, err
}

// signTimes returns the hash of the relative timestamps of all clocks.
func (s *side) signTimes(ctx context.Context, episode int) (digest, error) {
	if !s.knowsTime {
		return digest{}, nil
	}
	return digestOf(func(add func([]byte)) error {
		for _, key := range s.clockKeys() {
			times, err := s.relativeTimes(ctx, episode, key)
			if err != nil {
				return err
			}
			b := make([]byte, 0, 8*len(times)+8)
			b = binary.LittleEndian.AppendUint64(b, uint64(len(times)))
			for _, t := range times {
				b = binary.LittleEndian.AppendUint64(b, uint64(t))
			}
			add(b)
		}
		return nil
	})
}

// clockKeys returns one key for each clock of the dataset, in the order of the keys. "" is the
// clock of the rows.
func (s *side) clockKeys() []string {
	keys, seen := []string{""}, map[string]bool{"": true}
	for i := range s.ds.Info().Features {
		if f := &s.ds.Info().Features[i]; !f.Default && !seen[f.Clock] {
			seen[f.Clock] = true
			keys = append(keys, f.Key)
		}
	}
	slices.Sort(keys)
	return keys
}

// relativeTimes returns the timestamps of a stream, relative to the first row of the episode. It
// returns none if the episode lacks the stream.
func (s *side) relativeTimes(ctx context.Context, episode int, key string) ([]int64, error) {
	if key != "" && robocache.Lacks(s.ds, episode, key) {
		return nil, nil
	}
	times, err := s.ds.Times(ctx, episode, key)
	if err != nil {
		return nil, s.located(err, episode, key)
	}
	first := times
	if key != "" {
		if first, err = s.ds.Times(ctx, episode, ""); err != nil {
			return nil, s.located(err, episode, "")
		}
	}
	if len(first) == 0 {
		return times, nil
	}
	out := make([]int64, len(times))
	for i, t := range times {
		out[i] = t - first[0]
	}
	return out, nil
}

// rowTasks returns the task of each row if the episode has several, else its task.
func (s *side) rowTasks(ctx context.Context, episode int) ([]string, error) {
	ep, err := s.ds.Episode(ctx, episode)
	if err != nil || len(ep.Tasks) < 2 {
		return ep.Tasks, err
	}
	texts, err := s.ds.Text(ctx, "task", robocache.RowsOf(episode, 0, s.ds.Len(episode)))
	if errors.Is(err, robocache.ErrNotFound) || errors.Is(err, robocache.ErrMisuse) ||
		errors.Is(err, robocache.ErrUnsupported) {
		return ep.Tasks, nil
	}
	return texts, err
}

// eachOf calls do with 0 to n-1, concurrently, and reports the progress.
func (c *comparison) eachOf(
	ctx context.Context, n int, do func(ctx context.Context, i int) error,
) error {
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(max(1, c.opt.Threads))
	for i := range n {
		if inner.Err() != nil {
			break
		}
		group.Go(func() (err error) {
			defer crash.Recover("diff", &err)
			if err := do(inner, i); err != nil {
				return err
			}
			c.advance()
			return nil
		})
	}
	return cmp.Or(group.Wait(), ctx.Err())
}

// sketch holds hashes by which episodes that differ are matched.
type sketch struct {
	streams []uint64 // of whole streams
	rows    []uint64 // the least hashes of rows
}

const (
	sketchBytes = 64 << 20 // of all sketches of a dataset
	leastRows   = 4        // hashes of rows of a stream
	mostRows    = 64
	// minDistinct is the number of distinct rows from which a whole stream identifies an episode.
	minDistinct = 4
)

// sketch reads an episode and returns its sketch. Each stream adds at most keep hashes of rows.
func (s *side) sketch(ctx context.Context, episode, keep int) (out sketch, err error) {
	for _, x := range s.streams {
		n, ok, err := s.rowCount(ctx, episode, x.Feature)
		if err != nil {
			return out, s.located(err, episode, x.Key)
		}
		if !ok || n == 0 {
			continue
		}
		hashes, err := s.rowHashes(ctx, x, episode, n)
		if err != nil {
			return out, err
		}
		whole := make([]byte, 0, 8*n)
		for _, h := range hashes {
			whole = binary.LittleEndian.AppendUint64(whole, h)
		}
		slices.Sort(hashes)
		hashes = slices.Compact(hashes)
		if len(hashes) >= minDistinct {
			out.streams = append(out.streams, xxh3.Hash(whole))
		}
		out.rows = append(out.rows, hashes[:min(keep, len(hashes))]...)
	}
	slices.Sort(out.rows)
	out.rows = slices.Clip(slices.Compact(out.rows))
	return out, nil
}

// sketchRows returns the number of hashes of rows of a stream that fit the budget.
func sketchRows(episodes, streams int) int {
	return min(mostRows, max(leastRows, sketchBytes/8/max(1, episodes*streams)))
}
