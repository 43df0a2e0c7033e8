package query

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/flags"
)

// Fingerprint identifies the state of a dataset: its schema, its rate, the lengths of its episodes,
// some values, and the names, sizes and versions of its files.
func Fingerprint(ctx context.Context, ds robocache.Dataset) (string, error) {
	content, err := flags.Fingerprint(ctx, ds)
	if err != nil {
		return "", err
	}
	state, err := flags.FilesState(ctx, ds)
	return fmt.Sprintf("%s %v %s", content, ds.Info().FPS, state), err
}

// IndexPath returns the local file for the index of a dataset. A view of a dataset at another rate
// has a file of its own.
func IndexPath(ds robocache.Dataset) (string, error) {
	name := indexName
	if w, ok := ds.(robocache.Wrapper); ok {
		if rate := ds.Info().FPS; rate != w.Unwrap().Info().FPS {
			name = strings.ReplaceAll(rate.String(), "/", "_") + "hz." + indexName
		}
	}
	return sidecarPath(ds, name)
}

// sidecarPath returns the local file for results about a dataset: meta/NAME in a folder, FILE.NAME
// next to a file, and a file in the user's cache folder for other datasets.
func sidecarPath(ds robocache.Dataset, name string) (string, error) {
	uri := strings.TrimPrefix(ds.Info().URI, "file://")
	info, err := os.Stat(uri)
	switch {
	case err == nil && info.IsDir():
		return filepath.Join(uri, "meta", name), nil
	case err == nil:
		return uri + "." + name, nil
	}
	folder, err := os.UserCacheDir()
	if err != nil {
		return "", robocache.Unsupported("find", nil, "there is no cache folder for %s", name).
			WithCause(err).WithHint("Set XDG_CACHE_HOME or HOME.")
	}
	hash := sha256.Sum256([]byte(ds.Info().URI))
	return filepath.Join(folder, "robocache", hex.EncodeToString(hash[:8])+"."+name), nil
}

const indexName = "search.index"

// WriteFlags adds ranges to a file of flagged episodes, which is made if there is none. They replace
// its flags with the same label. Ranges of whole episodes become flags without rows.
func WriteFlags(
	ctx context.Context, path, label string, ds robocache.Dataset, ranges []Range, whole bool,
) error {
	label = cmp.Or(label, "found")
	file, err := flags.Read(ctx, path)
	if errors.Is(err, robocache.ErrNotFound) {
		file, err = flags.New(ctx, ds)
	}
	if err == nil {
		err = file.Check(ctx, ds)
	}
	if err != nil {
		return robocache.At(err, robocache.Where{"file": path})
	}
	file.Flags = slices.DeleteFunc(file.Flags, func(f flags.Flag) bool { return f.Label == label })
	for _, r := range ranges {
		f := flags.Flag{Episode: r.Episode, Length: r.Length, Label: label}
		if !whole {
			f.Rows = []int{r.From, r.To}
		}
		file.Flags = append(file.Flags, f)
	}
	return file.Write(ctx, path)
}
