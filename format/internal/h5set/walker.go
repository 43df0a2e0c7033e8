package h5set

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
)

// Walker finds objects below a group, and reads each group on the way once.
type Walker struct {
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
func (e *Episode) Walker(ctx context.Context) (*Walker, error) {
	o, err := e.File.At(ctx, e.Group)
	if err != nil {
		return nil, err
	}
	return NewWalker(ctx, e.File, o, e.Path)
}

// NewWalker begins at a group.
func NewWalker(ctx context.Context, f *h5.File, o *h5.Object, path string) (*Walker, error) {
	links, err := o.Links(ctx)
	if err != nil {
		return nil, err
	}
	return &Walker{file: f, path: path, groups: map[string]*group{"": {o, links}}}, nil
}

// Group gives a group below.
func (w *Walker) group(ctx context.Context, path string) (*group, error) {
	if g := w.groups[path]; g != nil {
		return g, nil
	}
	o, err := w.Object(ctx, path)
	if err != nil {
		return nil, err
	}
	links, err := o.Links(ctx)
	if err != nil {
		return nil, err
	}
	g := &group{o, links}
	w.groups[path] = g
	return g, nil
}

// Object gives an object below; ErrNotFound where there is none.
func (w *Walker) Object(ctx context.Context, path string) (*h5.Object, error) {
	dir, name := "", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dir, name = path[:i], path[i+1:]
	}
	g, err := w.group(ctx, dir)
	if err != nil {
		return nil, err
	}
	i, ok := slices.BinarySearchFunc(g.links, name, func(l h5.Link, n string) int { return strings.Compare(l.Name, n) })
	if !ok {
		return nil, &robocache.Error{Class: robocache.ErrNotFound, Op: "hdf5", Where: robocache.Where{"file": w.file.Name(), "pointer": w.at(path)}, Msg: fmt.Sprintf("no object %q", name)}
	}
	return g.o.Follow(ctx, &g.links[i])
}

// Links lists a group below.
func (w *Walker) Links(ctx context.Context, path string) ([]h5.Link, error) {
	g, err := w.group(ctx, path)
	if err != nil {
		return nil, err
	}
	return g.links, nil
}

func (w *Walker) at(path string) string { return strings.TrimPrefix(w.path+"/"+path, "/") }

// Dataset opens a data set below.
func (w *Walker) Dataset(ctx context.Context, path string) (*h5.Dataset, error) {
	o, err := w.Object(ctx, path)
	if err != nil {
		return nil, err
	}
	if !o.IsDataset() {
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "hdf5", Where: robocache.Where{"file": w.file.Name(), "pointer": w.at(path)}, Want: "a data set", Got: "a group"}
	}
	return o.Dataset(ctx, w.at(path))
}

// maxObjects bounds a walk through a file.
const maxObjects = 1 << 20

// Walk calls each for every data set below a group, by path. Links out of the file, dangling ones and objects seen before are skipped:
// skip is told.
func (w *Walker) Walk(ctx context.Context, path string, each func(path string, o *h5.Object) error, skip func(path, why string)) error {
	seen := map[uint64]bool{}
	return w.walk(ctx, path, seen, 0, each, skip)
}

func (w *Walker) walk(ctx context.Context, path string, seen map[uint64]bool, depth int, each func(path string, o *h5.Object) error, skip func(path, why string)) error {
	g, err := w.group(ctx, path)
	if err != nil {
		return err
	}
	if seen[g.o.Address()] || depth > 64 {
		skip(path, "another name of a group that was seen, or a group that holds itself")
		return nil
	}
	seen[g.o.Address()] = true // once: groups that link each other would make the walk exponential
	for i := range g.links {
		name := g.links[i].Name
		if path != "" {
			name = path + "/" + name
		}
		o, err := w.Object(ctx, name)
		if err != nil {
			if !Data(err) {
				return err
			}
			skip(name, err.Error())
			continue
		}
		if w.count++; w.count > maxObjects {
			return &robocache.Error{Class: robocache.ErrResourceLimit, Op: "hdf5", Where: robocache.Where{"file": w.file.Name()}, Msg: "too many objects", Want: fmt.Sprintf("at most %d", maxObjects)}
		}
		switch {
		case o.IsDataset():
			err = each(name, o)
		case o.IsGroup():
			err = w.walk(ctx, name, seen, depth+1, each, skip)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
