package loader

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/goatnote-inc/robocache"
)

// identityWait bounds what a state waits for a store: without an answer it says nothing of the values.
const identityWait = 30 * time.Second

// identityKey is the stream by whose values datasets are told apart: the actions, else the first one of numbers by name.
func identityKey(info *robocache.Info) string {
	var keys []string
	for i := range info.Features {
		if f := &info.Features[i]; f.Kind == robocache.KindNumeric && !f.Ragged() && !f.Default && f.RowBytes() > 0 {
			keys = append(keys, f.Key)
		}
	}
	if slices.Contains(keys, "action") || len(keys) == 0 {
		return "action"
	}
	return slices.Min(keys)
}

// values is a hash over the first, middle and last row of a stream in the first and the last selected episode that have rows: it is the same wherever the
// dataset lies. "" where it cannot be read.
func (src *source) values(key string) string {
	if got, ok := src.identity.Load(key); ok {
		return got.(string)
	}
	info := src.ds.Info()
	f := info.Feature(key)
	if f == nil || f.RowBytes() == 0 {
		return ""
	}
	ctx, stop := context.WithTimeout(context.Background(), identityWait)
	defer stop()
	h := sha256.New()
	fmt.Fprintf(h, "%s %s %v", key, f.DType, f.Shape)
	t := src.table
	var ends []int // the first and the last episode with samples
	for i := range t.Len() {
		if from, to := t.Span(i); to > from {
			ends = append(ends[:min(len(ends), 1)], t.Episode(i))
		}
	}
	for _, e := range ends {
		n, err := robocache.RowsIn(ctx, src.ds, e, f)
		if err != nil {
			return ""
		}
		if n == 0 {
			continue
		}
		rows := []robocache.Row{{Episode: e, Index: 0}, {Episode: e, Index: n / 2}, {Episode: e, Index: n - 1}}
		data := make([]byte, len(rows)*f.RowBytes())
		if err := src.ds.Gather(ctx, key, rows, data); err != nil {
			return ""
		}
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(e)))
		h.Write(data)
	}
	sum := hex.EncodeToString(h.Sum(nil)[:12])
	src.identity.Store(key, sum)
	return sum
}

// Identify writes into a state of this loader by what its data is told from other data of the same lengths. It reads a few rows, once.
func (l *Loader) Identify(s *State) {
	for i, src := range l.a.sources {
		print := &s.Fingerprint
		if len(s.Sources) > 0 {
			print = &s.Sources[i].Fingerprint
		}
		key := identityKey(src.ds.Info())
		if sum := src.values(key); sum != "" {
			print.Stream, print.Values = key, sum
		}
	}
}

// otherData names the first source whose values are not those that a state is of; "" where none is. States of earlier versions do not tell.
func (l *Loader) otherData(s *State) string {
	for i := range max(len(s.Sources), 1) {
		print, name := &s.Fingerprint, ""
		if len(s.Sources) > 0 {
			print, name = &s.Sources[i].Fingerprint, "source "+s.Sources[i].Name+": "
		}
		if print.Values == "" {
			continue
		}
		src := l.a.sources[i]
		if src.ds.Info().Feature(print.Stream) == nil {
			return "the state is of other data: " + name + "here is no stream " + print.Stream
		}
		if own := src.values(print.Stream); own != "" && own != print.Values {
			return "the state is of other data: " + name + "equally many episodes of equal lengths, but the values of " + print.Stream + " differ"
		}
	}
	return ""
}
