package options

import (
	"cmp"

	"github.com/goatnote-inc/robocache"
)

// MissingKey is the error of a key that a dataset does not give: the reason, where it declares one.
func MissingKey(info *robocache.Info, option, key string, known []string) error {
	return cmp.Or(info.Withheld(key), UnknownKey(option, key, known))
}

func UnknownKey(option, key string, known []string) error {
	return robocache.Misuse("loader", robocache.Where{"stream": key}, "%s: the dataset has no key %s", option, key).
		WithHint("%s", robocache.Nearest(key, known))
}

func FeatureKeys(info *robocache.Info) []string {
	out := make([]string, len(info.Features))
	for i := range info.Features {
		out[i] = info.Features[i].Key
	}
	return out
}
