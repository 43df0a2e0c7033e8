package loader

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// identityKey returns the stream whose values identify a dataset: "action", or else the first dense
// numeric stream by name.
func identityKey(info *robocache.Info) string {
	var keys []string
	for i := range info.Features {
		f := &info.Features[i]
		if f.Kind == robocache.KindNumeric && !f.Ragged() && !f.Default && f.RowBytes() > 0 {
			keys = append(keys, f.Key)
		}
	}
	if slices.Contains(keys, "action") || len(keys) == 0 {
		return "action"
	}
	return slices.Min(keys)
}

// derivedHash returns a hash of the keys and values of derived streams, or "" if there are none.
func derivedHash(info *robocache.Info) string {
	h := sha256.New()
	isDerived := false
	for i := range info.Features {
		if f := &info.Features[i]; f.Derived != "" {
			isDerived = true
			fmt.Fprintf(h, "%q %s\n", f.Key, f.Derived)
		}
	}
	if !isDerived {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// Identify adds a hash of values to a state of this loader, which distinguishes its data from other
// data of the same lengths. The first call reads a few rows. The log of arrivals identifies the data
// of a loader that follows a dataset.
func (l *Loader) Identify(s *State) {
	if s.Follow != nil {
		return
	}
	for i, src := range l.assembler.Sources {
		print := &s.Fingerprint
		if len(s.Sources) > 0 {
			print = &s.Sources[i].Fingerprint
		}
		print.Derived = derivedHash(src.Dataset.Info())
		key := identityKey(src.Dataset.Info())
		if sum := src.ValuesHash(key); sum != "" {
			print.Stream, print.Values = key, sum
		}
	}
}

// dataMismatch describes the first source whose values differ from those that a state was made of.
// It returns "" if there is none. States of earlier versions hold no hash and always match.
func (l *Loader) dataMismatch(s *State) string {
	for i := range max(len(s.Sources), 1) {
		print, name := &s.Fingerprint, ""
		if len(s.Sources) > 0 {
			print, name = &s.Sources[i].Fingerprint, "source "+s.Sources[i].Name+": "
		}
		src := l.assembler.Sources[i]
		if print.Derived != derivedHash(src.Dataset.Info()) {
			return "the state is of other data: " + name + "the values of derived streams differ"
		}
		if print.Values == "" {
			continue
		}
		if src.Dataset.Info().Feature(print.Stream) == nil {
			return "the state is of other data: " + name + "here is no stream " + print.Stream
		}
		if hash := src.ValuesHash(print.Stream); hash != "" && hash != print.Values {
			return "the state is of other data: " + name + "equally many episodes of equal " +
				"lengths, but the values of " + print.Stream + " differ"
		}
	}
	return ""
}
