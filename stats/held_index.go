package stats

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
	"golang.org/x/sync/errgroup"
)

// heldIndex is the file that lists the held episodes of a source and the counts of a trainer. It is
// replaced as a whole. A file that it names may be missing.
type heldIndex struct {
	Version  int                     `json:"version"`
	Source   string                  `json:"source"`
	Dataset  string                  `json:"dataset"` // for people
	Episodes []*heldEpisode          `json:"episodes"`
	Chains   map[string]*windowChain `json:"chains,omitempty"`
}

const heldVersion = 1

// numbersFinder is a dataset that knows the files of its numbers. exists reports whether a file
// exists. The result is "" if the file is unknown.
type numbersFinder interface {
	NumbersIn(episode int, exists func(name string) bool) (file string, row int64)
}

// identities returns the identities of all episodes by position. If the dataset does not know the
// files of an episode, all files of the dataset determine it.
func (h *Held) identities(ctx context.Context) (map[int]string, error) {
	source, ok := robocache.As[store.Source](h.Dataset)
	if !ok {
		return nil, robocache.Unsupported("statistics", nil,
			"the dataset has no files whose changes would be noticed").
			WithHint("Leave out %s.", robocache.Option("partials", ""))
	}
	files, err := source.Store().List(ctx, "")
	if err != nil {
		return nil, err
	}
	versions, whole := map[string]store.Entry{}, sha256.New()
	for _, f := range files {
		versions[f.Name] = f
		fmt.Fprintf(whole, "%q %d %s\n", f.Name, f.Size, f.Version)
	}
	exists := func(name string) bool { _, ok := versions[name]; return ok }
	stateOf := func(name string) string {
		if f, ok := versions[name]; ok {
			return fmt.Sprintf("%q %d %s", name, f.Size, f.Version)
		}
		folder := sha256.New()
		i, _ := slices.BinarySearchFunc(files, name+"/", func(f store.Entry, n string) int {
			return strings.Compare(f.Name, n)
		})
		n := 0
		for ; i < len(files) && strings.HasPrefix(files[i].Name, name+"/"); i++ {
			fmt.Fprintf(folder, "%q %d %s\n", files[i].Name, files[i].Size, files[i].Version)
			n++
		}
		if n == 0 {
			return ""
		}
		return hex.EncodeToString(folder.Sum(nil))
	}
	states := map[string]string{}
	all := hex.EncodeToString(whole.Sum(nil))
	finder, isFinder := h.Dataset.(numbersFinder)
	recording := h.Capabilities().Recording
	out := make(map[int]string, h.Info().Episodes)
	for e := range h.Info().Episodes {
		name, row := "", int64(0)
		switch {
		case isFinder:
			name, row = finder.NumbersIn(e, exists)
		case recording != nil:
			name = recording(e)
		}
		state, known := states[name]
		if name != "" && !known {
			state = stateOf(name)
			states[name] = state
		}
		if state == "" {
			state = all
		}
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %s", h.episodeText(e), row, state))
		out[e] = hex.EncodeToString(sum[:16])
	}
	return out, nil
}

func (h *Held) indexPath() string {
	return filepath.Join(h.opt.Folder, "partials-"+h.source+".json")
}

// loadIndex finds the episodes that are held and unchanged. An index that cannot be read, and an
// episode whose bytes are not those of its sum, count as absent.
func (h *Held) loadIndex(ctx context.Context, identities map[int]string) error {
	text, err := os.ReadFile(h.indexPath())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return robocache.At(err, robocache.Where{"file": h.indexPath()})
	}
	var index heldIndex
	if json.Unmarshal(text, &index) != nil || index.Version != heldVersion ||
		index.Source != h.source {
		return nil
	}
	held := make(map[string]*heldEpisode, len(index.Episodes))
	for _, e := range index.Episodes {
		if e == nil || e.Rows < 0 || e.Offset < 0 || filepath.Base(e.Segment) != e.Segment {
			return nil
		}
		held[e.Identity] = e
	}
	isGood := make([]bool, len(identities))
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(h.opt.Threads)
	for position, identity := range identities {
		e := held[identity]
		if e == nil || e.Rows != h.Len(position) || h.openSegment(e.Segment) != nil {
			continue
		}
		h.episodes[position] = e
		g.Go(crash.Func("statistics", func() error {
			isGood[position] = h.verify(e)
			return inner.Err()
		}))
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for position := range identities {
		if !isGood[position] {
			delete(h.episodes, position)
		}
	}
	if index.Chains != nil {
		h.chains = index.Chains
	}
	return nil
}

// openSegment opens a file of the folder, once.
func (h *Held) openSegment(name string) error {
	if h.segments[name] != nil {
		return nil
	}
	f, err := os.Open(filepath.Join(h.opt.Folder, name))
	if err == nil {
		h.segments[name] = f
	}
	return err
}

// verify reports whether the bytes of an episode are those that were written.
func (h *Held) verify(e *heldEpisode) bool {
	f := h.segments[e.Segment]
	info, err := f.Stat()
	n := int64(e.Rows) * h.rowBytes
	if err != nil || e.Offset+n > info.Size() {
		return false
	}
	block := make([]byte, n)
	if _, err := f.ReadAt(block, e.Offset); err != nil {
		return false
	}
	sum := sha256.Sum256(block)
	return hex.EncodeToString(sum[:]) == e.Sum
}

// leftoverAge is the age from which a segment that no index names is removed. A younger one may be
// in the hands of another process.
const leftoverAge = 24 * time.Hour

// Save replaces the index in the folder, if there is one, and removes segments that nothing uses.
func (h *Held) Save() error {
	if h.opt.Folder == "" {
		return nil
	}
	index := heldIndex{
		Version: heldVersion, Source: h.source, Dataset: robocache.Redact(h.Info().URI),
		Chains: h.chains,
	}
	for e := range h.Info().Episodes {
		if one := h.episodes[e]; one != nil {
			index.Episodes = append(index.Episodes, one)
		}
	}
	text, err := json.Marshal(&index)
	if err != nil {
		return robocache.Malformed("write partial statistics", nil, "").WithCause(err)
	}
	if err := os.MkdirAll(h.opt.Folder, 0o755); err != nil {
		return robocache.At(err, robocache.Where{"file": h.opt.Folder})
	}
	temporary, err := os.CreateTemp(h.opt.Folder, "partials-*.tmp")
	if err == nil {
		_, err = temporary.Write(text)
		if closed := temporary.Close(); err == nil {
			err = closed
		}
		if err == nil {
			err = os.Rename(temporary.Name(), h.indexPath())
		}
		if err != nil {
			_ = os.Remove(temporary.Name())
		}
	}
	if err != nil {
		return robocache.At(err, robocache.Where{"file": h.indexPath()})
	}
	h.removeLeftovers()
	return nil
}

// removeLeftovers removes old segments that no index names. Errors are ignored: the next call tries
// again.
func (h *Held) removeLeftovers() {
	named := map[string]bool{}
	indexes, _ := filepath.Glob(filepath.Join(h.opt.Folder, "partials-*.json"))
	for _, path := range indexes {
		var index heldIndex
		text, err := os.ReadFile(path)
		if err != nil || json.Unmarshal(text, &index) != nil {
			return
		}
		for _, e := range index.Episodes {
			named[e.Segment] = true
		}
	}
	segments, _ := filepath.Glob(filepath.Join(h.opt.Folder, "numbers-*.bin"))
	for _, path := range segments {
		info, err := os.Stat(path)
		if err == nil && !named[filepath.Base(path)] && time.Since(info.ModTime()) > leftoverAge {
			_ = os.Remove(path)
		}
	}
}
