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

// maxAbove is how many levels a dataset may be below the opened folder: name, config, version.
const maxAbove = 3

// Detect reports whether features.json and dataset_info.json are in the folder, or in a version
// folder below it.
func Detect(ctx context.Context, uri string, opt robocache.OpenOptions) (_ bool, err error) {
	defer guard.Recover("rlds detect", &err)
	s := guard.Must(store.OpenFor(uri, opt))
	defer store.Close(s)
	if isVersion(ctx, s, "") {
		return true, nil
	}
	found, err := guard.Value(func() []version { return findVersions(ctx, s) })
	if errors.Is(err, robocache.ErrUnsupported) {
		return false, nil // this store cannot list folders; the caller must name the version folder
	}
	return len(found) > 0, err
}

// isVersion reports whether a folder holds a prepared dataset. A missing features.json is accepted,
// because Open reports it.
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

// hasShards reports whether a folder directly contains files that look like shards.
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

// version is a version folder below the opened one.
type version struct {
	dir   string
	above string // the folder of its versions
	nums  [3]int
}

// parseVersion parses "1.0.0".
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

// findVersions finds the datasets below the root of a store by the names of their folders.
func findVersions(ctx context.Context, s store.Store) []version {
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

// chooseFolder returns the folder of the version to open. It is the root itself, or the highest
// version of the only dataset below it.
func chooseFolder(
	ctx context.Context,
	s store.Store,
	options map[string]string,
) (dir string, found []robocache.Finding) {
	if isVersion(ctx, s, "") {
		if want := options["version"]; want != "" &&
			path.Base(strings.TrimRight(s.URI(), "/")) != want {
			guard.Fail(robocache.Misuse(
				"rlds",
				robocache.Where{"option": "version"},
				"the opened folder is one version",
			).WithHint("open the folder above it"))
		}
		return "", nil
	}
	for _, pair := range [][2]string{{infoName, featuresName}, {featuresName, infoName}} {
		if _, err := s.Stat(ctx, pair[0]); err == nil {
			guard.Fail(
				robocache.NotFound(
					"rlds",
					robocache.Where{"file": pair[1]},
					"the folder holds %s, but not %s",
					pair[0],
					pair[1],
				).WithHint(
					"only these files have names and shapes: copy them to the folder of " +
						"the shards",
				),
			)
		}
	}
	all := findVersions(ctx, s)
	all = slices.DeleteFunc(all, func(v version) bool {
		return options["version"] != "" && path.Base(v.dir) != options["version"] ||
			options["config"] != "" && path.Base(v.above) != options["config"]
	})
	if len(all) == 0 {
		guard.Fail(robocache.NotFound(
			"rlds",
			nil,
			"there is no folder <name>[/<config>]/<version> with %s and %s",
			infoName,
			featuresName,
		))
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
			robocache.Misuse(
				"rlds",
				nil,
				"the folder holds %d datasets: %s",
				len(names),
				quoteClipped(strings.Join(names, ", ")),
			).WithHint(
				"open one of them, or name its folder: %s",
				robocache.Option("options", "config", "FOLDER"),
			),
		)
	}
	if len(all) > 1 {
		found = append(found, robocache.Finding{
			Severity: robocache.SeverityInfo,
			Code:     "several-versions",
			Where:    robocache.Where{"file": last.dir},
			Message: fmt.Sprintf(
				"the folder holds %d versions; the highest was opened",
				len(all),
			),
			Hint:  "to open another one, pass " + robocache.Option("options", "version", "VERSION"),
			Count: int64(len(all)),
		})
	}
	return last.dir, found
}
