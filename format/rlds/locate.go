package rlds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// maxAbove is how many levels a data set may lie below the folder that is opened: name, config,
// version.
const maxAbove = 3

// Detect says whether features.json and dataset_info.json lie in the folder, or in a folder with a
// version's name below it.
func Detect(ctx context.Context, uri string, opt robocache.OpenOptions) (_ bool, err error) {
	defer guard.Recover("rlds detect", &err)
	s := guard.Must(store.OpenFor(uri, opt))
	defer store.Close(s)
	if isVersion(ctx, s, "") {
		return true, nil
	}
	found, err := guard.Value(func() []version { return versions(ctx, s) })
	if errors.Is(err, robocache.ErrUnsupported) {
		return false, nil // this store cannot list folders: name the folder of the version
	}
	return len(found) > 0, err
}

// isVersion says whether a folder holds a prepared data set: also one whose features.json was not
// fetched, which opening says.
func isVersion(ctx context.Context, s store.Store, dir string) bool {
	for _, n := range []string{infoName, featuresName} {
		_, err := s.Stat(ctx, path.Join(dir, n))
		if errors.Is(err, robocache.ErrNotFound) {
			return n == featuresName && hasShards(ctx, s, dir)
		}
		guard.Check(err)
	}
	return true
}

// hasShards says whether files that look like shards lie directly in a folder.
func hasShards(ctx context.Context, s store.Store, dir string) bool {
	files, _, err := store.Files(
		ctx,
		s,
		dir,
		func(name string) bool { return strings.Contains(path.Base(name), "tfrecord") },
	)
	return err == nil &&
		slices.ContainsFunc(
			files,
			func(f store.Entry) bool { return path.Dir(f.Name) == path.Clean(dir) },
		)
}

// version is a folder below the one that was opened.
type version struct {
	dir   string
	above string // the folder of its versions
	nums  [3]int
}

// parseVersion reads "1.0.0".
func parseVersion(name string) (v [3]int, ok bool) {
	parts := strings.Split(name, ".")
	if len(parts) != 3 {
		return v, false
	}
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 || len(p) > 9 {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

// versions finds the data sets below the root of a store, by the names of their folders.
func versions(ctx context.Context, s store.Store) []version {
	var out []version
	var walk func(dir string, level int)
	walk = func(dir string, level int) {
		for _, n := range guard.Must(store.Folders(ctx, s, dir)) {
			sub := path.Join(dir, n)
			if v, ok := parseVersion(n); !ok && level < maxAbove && n != "" && n[0] != '.' {
				walk(sub, level+1)
			} else if ok && isVersion(ctx, s, sub) {
				out = append(out, version{dir: sub, above: dir, nums: v})
			}
		}
	}
	walk("", 1)
	slices.SortFunc(out, func(a, b version) int {
		return cmp.Or(
			cmp.Compare(a.above, b.above),
			slices.Compare(a.nums[:], b.nums[:]),
			cmp.Compare(a.dir, b.dir),
		)
	})
	return out
}

// locate finds the folder of the version to open: the root itself, or the highest version of the
// one data set below it.
func locate(
	ctx context.Context,
	s store.Store,
	options map[string]string,
) (dir string, found []robocache.Finding) {
	if isVersion(ctx, s, "") {
		if want := options["version"]; want != "" &&
			path.Base(strings.TrimRight(s.URI(), "/")) != want {
			guard.Fail(
				robocache.Misuse("rlds", robocache.Where{"option": "version"}, "the folder that was opened is one version").
					WithHint("open the folder above it"),
			)
		}
		return "", nil
	}
	for _, pair := range [][2]string{{infoName, featuresName}, {featuresName, infoName}} {
		if _, err := s.Stat(ctx, pair[0]); err == nil {
			guard.Fail(
				robocache.NotFound("rlds", robocache.Where{"file": pair[1]}, "the folder holds %s, and not %s", pair[0], pair[1]).
					WithHint("shapes and names are only in these files: copy them beside the shards"),
			)
		}
	}
	all := versions(ctx, s)
	all = slices.DeleteFunc(all, func(v version) bool {
		return options["version"] != "" && path.Base(v.dir) != options["version"] ||
			options["config"] != "" && path.Base(v.above) != options["config"]
	})
	if len(all) == 0 {
		guard.Fail(
			robocache.NotFound(
				"rlds",
				nil,
				"no folder <name>[/<config>]/<version> with %s and %s is here",
				infoName,
				featuresName,
			),
		)
	}
	last := all[len(all)-1]
	if all[0].above != last.above {
		var names []string
		for _, v := range all {
			if n := len(names); n == 0 || names[n-1] != v.above {
				names = append(names, v.above)
			}
		}
		guard.Fail(
			robocache.Misuse("rlds", nil, "%d data sets are here: %s", len(names), clip(strings.Join(names, ", "))).
				WithHint("open one of them, or name its folder: %s", robocache.Option("options", "config", "FOLDER")),
		)
	}
	if len(all) > 1 {
		found = append(found, robocache.Finding{
			Severity: robocache.SeverityInfo,
			Code:     "several-versions",
			Where:    robocache.Where{"file": last.dir},
			Message: fmt.Sprintf(
				"%d versions are here, the highest was opened",
				len(all),
			),
			Hint:  robocache.Option("options", "version", "VERSION") + " opens another",
			Count: int64(len(all)),
		})
	}
	return last.dir, found
}
