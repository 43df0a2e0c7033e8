package h5set

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Walker finds objects below a group, and reads each group on the way once. What cannot be read ends the work (guard.Fail).
type Walker struct {
	ctx    context.Context
	file   *h5.File
	path   string
	groups map[string]*group
	count  int
}

type group struct {
	o     *h5.Object
	links []h5.Link
}

// Walker begins at the episode's group.
func (e *Episode) Walker(ctx context.Context) *Walker {
	return NewWalker(ctx, e.File, guard.Must(e.File.At(ctx, e.Group)), e.Path)
}

// NewWalker begins at a group.
func NewWalker(ctx context.Context, f *h5.File, o *h5.Object, path string) *Walker {
	return &Walker{ctx: ctx, file: f, path: path, groups: map[string]*group{"": {o, guard.Must(o.Links(ctx))}}}
}

func (w *Walker) group(path string) *group {
	g := w.groups[path]
	if g == nil {
		o := w.Object(path)
		g = &group{o, guard.Must(o.Links(w.ctx))}
		w.groups[path] = g
	}
	return g
}

// Object gives an object below; ErrNotFound where there is none.
func (w *Walker) Object(path string) *h5.Object {
	dir, name := "", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dir, name = path[:i], path[i+1:]
	}
	g := w.group(dir)
	i, ok := slices.BinarySearchFunc(g.links, name, func(l h5.Link, n string) int { return strings.Compare(l.Name, n) })
	if !ok {
		guard.Fail(&robocache.Error{Class: robocache.ErrNotFound, Op: "hdf5", Where: robocache.Where{"file": w.file.Name(), "pointer": w.at(path)}, Msg: fmt.Sprintf("no object %q", name)})
	}
	return guard.Must(g.o.Follow(w.ctx, &g.links[i]))
}

// Links lists a group below.
func (w *Walker) Links(path string) []h5.Link { return w.group(path).links }

func (w *Walker) at(path string) string { return strings.TrimPrefix(w.path+"/"+path, "/") }

// Dataset opens a data set below.
func (w *Walker) Dataset(path string) *h5.Dataset {
	o := w.Object(path)
	if !o.IsDataset() {
		guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: "hdf5", Where: robocache.Where{"file": w.file.Name(), "pointer": w.at(path)}, Want: "a data set", Got: "a group"})
	}
	return guard.Must(o.Dataset(w.ctx, w.at(path)))
}

// maxObjects bounds a walk through a file.
const maxObjects = 1 << 20

// Walk calls each for every data set below the group, by path. Links out of the file, dangling ones and objects seen before are skipped:
// skip is told, if there is one.
func (w *Walker) Walk(each func(path string, o *h5.Object), skip func(path, why string)) {
	if skip == nil {
		skip = func(string, string) {}
	}
	seen := map[uint64]bool{}
	var walk func(path string, depth int)
	walk = func(path string, depth int) {
		g := w.group(path)
		if seen[g.o.Address()] || depth > 64 {
			skip(path, "another name of a group that was seen, or a group that holds itself")
			return
		}
		seen[g.o.Address()] = true // once: groups that link each other would make the walk exponential
		for i := range g.links {
			name := strings.TrimPrefix(path+"/"+g.links[i].Name, "/")
			var o *h5.Object
			if err := Tolerate(func() { o = w.Object(name) }); err != nil {
				skip(name, err.Error())
				continue
			}
			if w.count++; w.count > maxObjects {
				guard.Fail(&robocache.Error{Class: robocache.ErrResourceLimit, Op: "hdf5", Where: robocache.Where{"file": w.file.Name()}, Msg: "too many objects", Want: fmt.Sprintf("at most %d", maxObjects)})
			}
			switch {
			case o.IsDataset():
				each(name, o)
			case o.IsGroup():
				walk(name, depth+1)
			}
		}
	}
	walk("", 0)
}
