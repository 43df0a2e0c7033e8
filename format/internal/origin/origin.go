// Package origin determines the recordings from which the episodes of a written dataset are made.
package origin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"regexp"
	"strconv"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// synthetic is the format of datasets that package synth makes.
const synthetic = "synth"

// Tracer finds the origins of a source's episodes. Safe for concurrent use.
type Tracer struct {
	src      robocache.Dataset
	replaced string
	// checksums of recordings, by their first and last file: func() (string, error)
	sums sync.Map
}

// NewTracer returns a tracer for a source that is written with the options opt.
func NewTracer(src robocache.Dataset, opt robocache.WriteOptions) *Tracer {
	return &Tracer{src: src, replaced: robocache.Redact(opt.Replaces)}
}

// Of returns the recording that an episode (a position) comes from, with its checksum. It returns
// nil if package synth made the episode, or if the episode comes from the dataset that the result
// replaces.
func (t *Tracer) Of(ctx context.Context, episode int) (*robocache.Origin, error) {
	o, err := t.withoutChecksum(ctx, episode)
	if o == nil || err != nil {
		return nil, err
	}
	s, ok := robocache.As[store.Source](t.src)
	if ok && o.Checksum == "" && o.File != "" && o.Dataset == robocache.Redact(t.src.Info().URI) {
		if o.Checksum, err = t.cachedChecksum(ctx, s.Store(), [2]string{o.File, o.LastFile}); err !=
			nil {
			return nil, err
		}
	}
	return o, nil
}

// cachedChecksum computes the checksum of a recording once for all its episodes.
func (t *Tracer) cachedChecksum(
	ctx context.Context,
	st store.Store,
	files [2]string,
) (string, error) {
	compute := sync.OnceValues(func() (string, error) {
		sum, err := fileChecksum(ctx, st, files)
		if robocache.Bad(err) {
			return "", nil
		}
		return sum, err
	})
	shared, _ := t.sums.LoadOrStore(files, compute)
	sum, err := shared.(func() (string, error))()
	if err != nil {
		t.sums.Delete(files)
	}
	return sum, err
}

func (t *Tracer) withoutChecksum(ctx context.Context, episode int) (*robocache.Origin, error) {
	o, err := robocache.OriginOf(ctx, t.src, episode)
	if err != nil || o.Format == synthetic || t.replaced != "" && o.Dataset == t.replaced {
		return nil, err
	}
	return o, nil
}

// Any reports whether Of returns an origin for at least one episode of the source. It reads no
// files for checksums.
func (t *Tracer) Any(ctx context.Context) (bool, error) {
	for e := range t.src.Info().Episodes {
		o, err := t.withoutChecksum(ctx, e)
		if err != nil && !robocache.Bad(err) {
			return false, err
		}
		if o != nil {
			return true, nil
		}
	}
	return false, nil
}

// Text returns the origin of an episode as JSON; "" if there is none.
func (t *Tracer) Text(ctx context.Context, episode int) (string, error) {
	o, err := t.Of(ctx, episode)
	if o == nil || err != nil {
		return "", err
	}
	b, err := json.Marshal(o)
	return string(b), err
}

// Parse parses the text of an origin. It returns nil if the text is not an origin.
func Parse(text string) *robocache.Origin {
	o := &robocache.Origin{}
	if json.Unmarshal([]byte(text), o) != nil || o.Dataset == "" {
		return nil
	}
	return o
}

// fileChecksum returns "sha256:" and the SHA-256 of a file. For a folder, and for files that are
// numbered from the first to the last, it is the SHA-256 of the output of sha256sum over the files,
// sorted by name. For a remote file, which is not read again, fileChecksum returns "etag:" and the
// version.
//
// The tracer records no checksum if a file is missing or damaged, because the conversion has
// already read the data that it needs. Failures of the transport are errors.
func fileChecksum(ctx context.Context, st store.Store, files [2]string) (string, error) {
	if files[1] != "" {
		names, err := numberedNames(files[0], files[1])
		if err != nil {
			return "", err
		}
		return sumOfList(ctx, st, names)
	}
	sum, err := sumOf(ctx, st, files[0])
	if !robocache.Bad(err) {
		return sum, err
	}
	list, err := st.List(ctx, files[0])
	if err != nil || len(list) == 0 {
		return "", err
	}
	return sumOfList(ctx, st, func(yield func(string) bool) {
		for _, f := range list {
			if !yield(f.Name) {
				return
			}
		}
	})
}

func sumOfList(ctx context.Context, st store.Store, names iter.Seq[string]) (string, error) {
	h := sha256.New()
	for name := range names {
		sum, err := sumOf(ctx, st, name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s  %s\n", sum, name)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// maxNumbered limits the files of one episode.
const maxNumbered = 1 << 24

// numberedNames returns the names from first to last, which differ in their last number.
func numberedNames(first, last string) (iter.Seq[string], error) {
	from, to := lastNumber.FindStringSubmatch(first), lastNumber.FindStringSubmatch(last)
	if from == nil || to == nil || from[1] != to[1] || from[3] != to[3] {
		return nil, robocache.Unsupported("origin", nil, "%s and %s are not numbered", first, last)
	}
	low, errLow := strconv.ParseInt(from[2], 10, 64)
	high, errHigh := strconv.ParseInt(to[2], 10, 64)
	if errLow != nil || errHigh != nil || high < low || high-low >= maxNumbered {
		return nil, robocache.Unsupported("origin", nil, "%s to %s is not a range", first, last)
	}
	return func(yield func(string) bool) {
		for n := low; n <= high; n++ {
			if !yield(fmt.Sprintf("%s%0*d%s", from[1], len(from[2]), n, from[3])) {
				return
			}
		}
	}, nil
}

// lastNumber divides a name into the text before its last number, the number, and the text behind
// it.
var lastNumber = regexp.MustCompile(`^(.*?)(\d+)(\D*)$`)

func sumOf(ctx context.Context, st store.Store, name string) (string, error) {
	f, err := st.Open(ctx, name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if robocache.IsRemote(f) {
		return "etag:" + f.Version(), nil
	}
	h := sha256.New()
	err = store.EachBlock(ctx, f, func(b []byte) error { _, err := h.Write(b); return err })
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), err
}
