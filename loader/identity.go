package loader

import (
	"slices"

	"github.com/goatnote-inc/robocache"
)

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

// Identify writes into a state of this loader by what its data is told from other data of the same lengths. It reads a few rows, once.
func (l *Loader) Identify(s *State) {
	for i, src := range l.a.Sources {
		print := &s.Fingerprint
		if len(s.Sources) > 0 {
			print = &s.Sources[i].Fingerprint
		}
		key := identityKey(src.Dataset.Info())
		if sum := src.ValuesHash(key); sum != "" {
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
		src := l.a.Sources[i]
		if src.Dataset.Info().Feature(print.Stream) == nil {
			return "the state is of other data: " + name + "here is no stream " + print.Stream
		}
		if own := src.ValuesHash(print.Stream); own != "" && own != print.Values {
			return "the state is of other data: " + name + "equally many episodes of equal lengths, but the values of " + print.Stream + " differ"
		}
	}
	return ""
}
