package stats

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"golang.org/x/sync/errgroup"
)

// HoldOptions are the options of Hold.
type HoldOptions struct {
	Keys     []string // numeric streams on the clock of the rows; others are not held
	Episodes []int    // positions; nil = all
	// Folder keeps what was read and counted for the next call; empty: a temporary file holds it.
	Folder string
	// Request states the options with which the dataset was opened, if they change its values.
	Request string
	Threads int // 0 = the number of CPUs
}

// Held is a dataset whose numbers of some streams were read once, in the order of the episodes, and
// are in local files. It reads everything else from the dataset. The caller must call Close, which
// does not close the dataset.
type Held struct {
	robocache.Dataset
	// New is the number of episodes that were read from the dataset. The others were held.
	New int

	streams  map[string]heldStream
	rowBytes int64 // of all held streams
	opt      HoldOptions
	source   string // see sourceOf
	episodes map[int]*heldEpisode
	segments map[string]*os.File
	chains   map[string]*windowChain
}

// heldStream is the place of a stream in the block of an episode: its rows follow those of the
// streams before it.
type heldStream struct{ before, size int64 } // bytes per row

// heldEpisode is an episode in a segment.
type heldEpisode struct {
	// Identity is a hash of the index and length of the episode, and of the names, sizes and
	// versions of the files that have its numbers.
	Identity string `json:"identity"`
	Segment  string `json:"segment"`
	Offset   int64  `json:"offset"`
	Rows     int    `json:"rows"`
	Sum      string `json:"sum"` // SHA-256 of its bytes
}

// Hold reads the numbers of a dataset once. With a folder, it reads only episodes that are new or
// whose files changed.
func Hold(ctx context.Context, ds robocache.Dataset, opt HoldOptions) (_ *Held, err error) {
	defer crash.Recover("statistics", &err)
	if opt.Threads <= 0 {
		opt.Threads = runtime.GOMAXPROCS(0)
	}
	if opt.Episodes == nil {
		for e := range ds.Info().Episodes {
			opt.Episodes = append(opt.Episodes, e)
		}
	}
	h := &Held{
		Dataset: ds, opt: opt, streams: map[string]heldStream{},
		episodes: map[int]*heldEpisode{}, segments: map[string]*os.File{},
		chains: map[string]*windowChain{},
	}
	for i := range ds.Info().Features {
		f := &ds.Info().Features[i]
		if n := int64(f.RowBytes()); n > 0 && f.Clock == "" && !f.Masked &&
			slices.Contains(opt.Keys, f.Key) {
			h.streams[f.Key] = heldStream{h.rowBytes, n}
			h.rowBytes += n
		}
	}
	h.source = h.sourceOf()
	defer func() {
		if err != nil {
			h.Close()
		}
	}()
	identities := map[int]string{}
	if opt.Folder != "" {
		if identities, err = h.identities(ctx); err != nil {
			return nil, err
		}
		if err := h.loadIndex(ctx, identities); err != nil {
			return nil, err
		}
	}
	if err := h.readMissing(ctx, identities); err != nil {
		return nil, err
	}
	return h, h.Save()
}

// Unwrap returns the dataset.
func (h *Held) Unwrap() robocache.Dataset { return h.Dataset }

// Close closes the files.
func (h *Held) Close() error {
	for _, f := range h.segments {
		_ = f.Close()
	}
	h.segments = map[string]*os.File{}
	return nil
}

// Gather copies rows of a stream. Rows that are held are read from their file.
func (h *Held) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	s, ok := h.streams[key]
	if !ok || int64(len(dst)) < int64(len(rows))*s.size {
		return h.Dataset.Gather(ctx, key, rows, dst)
	}
	for i := 0; i < len(rows); {
		r, n := rows[i], 1
		for i+n < len(rows) && rows[i+n] == (robocache.Row{Episode: r.Episode, Index: r.Index + n}) {
			n++
		}
		part := dst[int64(i)*s.size : int64(i+n)*s.size]
		e := h.episodes[r.Episode]
		if e == nil || r.Index < 0 || r.Index+n > e.Rows {
			if err := h.Dataset.Gather(ctx, key, rows[i:i+n], part); err != nil {
				return err
			}
		} else {
			at := e.Offset + s.before*int64(e.Rows) + s.size*int64(r.Index)
			if _, err := h.segments[e.Segment].ReadAt(part, at); err != nil {
				return robocache.At(err, robocache.Where{"file": e.Segment})
			}
		}
		i += n
	}
	return ctx.Err()
}

// heldGroup is the size in bytes of the episodes that one job reads.
const heldGroup = 4 << 20

// readMissing reads the episodes that are not held into a new segment, several at once.
func (h *Held) readMissing(ctx context.Context, identities map[int]string) error {
	var missing []int
	for _, e := range h.opt.Episodes {
		if h.episodes[e] == nil && !slices.Contains(missing[max(0, len(missing)-1):], e) {
			missing = append(missing, e)
		}
	}
	if h.New = len(missing); h.New == 0 || h.rowBytes == 0 {
		return nil
	}
	file, err := h.newSegment()
	if err != nil {
		return err
	}
	name := filepath.Base(file.Name())
	h.segments[name] = file
	read := make([]*heldEpisode, len(missing))
	var end int64
	for i, e := range missing {
		n := h.Len(e)
		read[i] = &heldEpisode{
			Identity: identities[e], Segment: name, Offset: end, Rows: n,
		}
		end += int64(n) * h.rowBytes
	}
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(h.opt.Threads)
	for first := 0; first < len(missing); {
		last := first + 1
		for last < len(missing) && read[last].Offset-read[first].Offset < heldGroup {
			last++
		}
		from, to := first, last
		g.Go(crash.Func("statistics", func() error {
			for i := from; i < to; i++ {
				if err := h.readEpisode(inner, missing[i], read[i], file); err != nil {
					index := h.Info().EpisodeIndex(missing[i])
					return robocache.At(err, robocache.Where{"episode": index})
				}
			}
			return nil
		}))
		first = last
	}
	if err := g.Wait(); err != nil {
		if h.opt.Folder != "" {
			_ = os.Remove(file.Name())
		}
		return err
	}
	for i, e := range missing {
		h.episodes[e] = read[i]
	}
	return nil
}

// readEpisode reads the held streams of an episode, and writes them to its place in a segment.
func (h *Held) readEpisode(
	ctx context.Context, episode int, e *heldEpisode, file *os.File,
) error {
	block := make([]byte, int64(e.Rows)*h.rowBytes)
	rows := robocache.RowsOf(episode, 0, e.Rows)
	for key, s := range h.streams {
		from := s.before * int64(e.Rows)
		part := block[from : from+s.size*int64(e.Rows)]
		if err := h.Dataset.Gather(ctx, key, rows, part); err != nil {
			return robocache.At(err, robocache.Where{"stream": key})
		}
	}
	sum := sha256.Sum256(block)
	e.Sum = hex.EncodeToString(sum[:])
	if _, err := file.WriteAt(block, e.Offset); err != nil {
		return robocache.At(err, robocache.Where{"file": file.Name()})
	}
	return nil
}

// newSegment creates the file for episodes that are read: with a folder, a new file there, else one
// without a name.
func (h *Held) newSegment() (*os.File, error) {
	folder := h.opt.Folder
	if folder != "" {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, robocache.At(err, robocache.Where{"file": folder})
		}
	}
	f, err := os.CreateTemp(folder, "numbers-*.bin")
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"file": folder})
	}
	if folder == "" {
		if err := os.Remove(f.Name()); err != nil {
			_ = f.Close()
			return nil, robocache.At(err, robocache.Where{"file": f.Name()})
		}
	}
	return f, nil
}

// prefixSums returns for each number of episodes, in the order of a list, a hash of their values.
// It returns nil if an episode is not held.
func (h *Held) prefixSums(episodes []int) []string {
	out, state := make([]string, 1, len(episodes)+1), [sha256.Size]byte{}
	for _, position := range episodes {
		e := h.episodes[position]
		if e == nil {
			return nil
		}
		state = sha256.Sum256(fmt.Appendf(state[:], "%d %s", e.Rows, e.Sum))
		out = append(out, hex.EncodeToString(state[:]))
	}
	return out
}

// sourceOf returns a hash of what an index belongs to: the dataset, the options with which it was
// opened, and the held streams.
func (h *Held) sourceOf() string {
	info := h.Info()
	s := sha256.New()
	fmt.Fprintf(s, "1 %q %q %q %q\n", info.URI, info.Format, info.Split, h.opt.Request)
	for i := range info.Features {
		if f := &info.Features[i]; h.streams[f.Key].size > 0 {
			fmt.Fprintf(s, "%q %s %v\n", f.Key, f.DType.String(), f.Shape)
		}
	}
	return hex.EncodeToString(s.Sum(nil)[:8])
}

// episodeText identifies an episode in messages and hashes.
func (h *Held) episodeText(position int) string {
	return strconv.FormatInt(h.Info().EpisodeIndex(position), 10) + " " +
		strconv.Itoa(h.Len(position))
}
