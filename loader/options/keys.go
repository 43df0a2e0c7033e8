package options

import (
	"cmp"

	"github.com/goatnote-inc/robocache"
)

// MissingKey returns the error of a key that a dataset does not deliver: the reason that the
// dataset declares, or UnknownKey.
func MissingKey(info *robocache.Info, option, key string, known []string) error {
	return cmp.Or(info.Withheld(key), UnknownKey(option, key, known))
}

// UnknownKey returns the error of a key that a dataset does not have. The hint names the nearest
// known key.
func UnknownKey(option, key string, known []string) error {
	return robocache.Misuse("loader", robocache.Where{"stream": key},
		"%s: the dataset has no key %s", option, key).
		WithHint("%s", robocache.Nearest(key, known))
}

// FeatureKeys returns the keys of the dataset's features.
func FeatureKeys(info *robocache.Info) []string {
	out := make([]string, len(info.Features))
	for i := range info.Features {
		out[i] = info.Features[i].Key
	}
	return out
}
